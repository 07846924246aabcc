// A tensor as the library sees it: a pointer, a dtype and a shape. Row-major, contiguous, not
// owned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace catamount {

enum class DType : std::uint8_t { bf16, f16, f32, f64, i32, i64, u8 };

std::size_t dtype_bytes(DType dtype) noexcept;
const char* to_string(DType dtype) noexcept;

template <class Pointer>
struct BasicTensorView {
  static constexpr int kMaxDims = 4;

  Pointer data = nullptr;
  DType dtype = DType::bf16;
  int num_dims = 0;  // 0 = this tensor is absent
  std::array<std::int64_t, kMaxDims> shape{};

  BasicTensorView() = default;
  BasicTensorView(Pointer pointer, DType type, std::initializer_list<std::int64_t> dims)
      : data(pointer), dtype(type) {
    for (const std::int64_t dim : dims) {
      if (num_dims < kMaxDims) shape[static_cast<std::size_t>(num_dims++)] = dim;
    }
  }
  // A writable view is a readable one.
  template <class Other>
  BasicTensorView(const BasicTensorView<Other>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), dtype(other.dtype), num_dims(other.num_dims), shape(other.shape) {}

  bool present() const noexcept { return num_dims > 0; }
  std::int64_t size() const noexcept {
    std::int64_t n = num_dims > 0 ? 1 : 0;
    for (int i = 0; i < num_dims; ++i) n *= shape[static_cast<std::size_t>(i)];
    return n;
  }
  std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(size()) * dtype_bytes(dtype);
  }
};

using TensorView = BasicTensorView<void*>;
using ConstTensorView = BasicTensorView<const void*>;

// "bf16[16, 256]"; "absent" where there is none.
std::string to_string(const ConstTensorView& tensor);

}  // namespace catamount
