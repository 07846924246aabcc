// Matrices of FP32 values in .npy or .safetensors files, by the name's ending: hidden states in,
// a layer's output out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace catamount::io {

struct Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<float> values;
};

// Leading dimensions are joined: [batch, sequence, H] is read as [batch * sequence, H]. A
// .safetensors file must hold one tensor, or one called `hidden_states`.
Matrix read_matrix(const std::filesystem::path& path);

// F32 [rows, cols]; in a .safetensors file the tensor is called `output`.
void write_matrix(const std::filesystem::path& path, const Matrix& matrix);

// Raises Error(invalid_argument) unless the name ends in .npy or .safetensors.
void check_matrix_name(const std::filesystem::path& path);

}  // namespace catamount::io
