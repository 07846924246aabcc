// A tensor as a file holds it: more dtypes than the library computes with, any number of
// dimensions, no promise of alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace catamount::io {

// In the order of kDTypes (file_tensor.cpp), which has their names and widths.
enum class FileDType : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};

int dtype_bits(FileDType dtype) noexcept;
const char* to_string(FileDType dtype) noexcept;  // "BF16": safetensors' own names
std::optional<FileDType> dtype_from_name(std::string_view name) noexcept;

// Bytes of a tensor; nothing when its size overflows 64 bits, a dimension is negative or its last
// byte would be part-filled.
std::optional<std::size_t> tensor_bytes(FileDType dtype, std::span<const std::int64_t> shape);

struct FileTensor {
  FileDType dtype = FileDType::f32;
  std::vector<std::int64_t> shape;  // empty = a scalar
  std::span<const std::byte> data;

  std::int64_t size() const noexcept {
    std::int64_t n = 1;
    for (const std::int64_t dim : shape) n *= dim;
    return n;
  }
};
using TensorMap = std::map<std::string, FileTensor, std::less<>>;

std::string to_string(std::span<const std::int64_t> shape);  // "[4, 8]"
std::string to_string(const FileTensor& tensor);             // "BF16[4, 8]"

}  // namespace catamount::io
