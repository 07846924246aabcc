// NumPy's .npy files: floating-point arrays in C order, format versions 1 and 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace catamount::io {

struct F32Array {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// Reads little-endian f2, f4 and f8 (rounded to f4). Anything else in the file is an Error(io).
F32Array parse_npy(std::span<const std::byte> bytes, const std::string& file = "npy");
F32Array read_npy(const std::filesystem::path& path);

// Writes a [rows, cols] array of f4.
void write_npy(const std::filesystem::path& path, std::span<const float> values, std::int64_t rows,
               std::int64_t cols);

}  // namespace catamount::io
