#include "io/matrix_file.h"

#include <span>
#include <string>
#include <utility>

#include "io/check_io.h"
#include "io/convert.h"
#include "io/npy.h"
#include "io/safetensors.h"

namespace catamount::io {
namespace {

bool is_npy(const std::filesystem::path& path) { return path.extension() == ".npy"; }

F32Array read_safetensors_array(const std::filesystem::path& path) {
  const Safetensors file(path);
  const FileTensor* tensor = file.find("hidden_states");
  if (tensor == nullptr && file.tensors().size() == 1) tensor = &file.tensors().begin()->second;
  check_io(tensor != nullptr,
           "{}: expected one tensor, or one called hidden_states, got {} tensors", path.string(),
           file.tensors().size());
  F32Array array{tensor->shape, std::vector<float>(static_cast<std::size_t>(tensor->size()))};
  tensor_to_f32(*tensor, path.string(), array.values);
  return array;
}

}  // namespace

void check_matrix_name(const std::filesystem::path& path) {
  check(is_npy(path) || path.extension() == ".safetensors",
        "{}: expected a name that ends in .npy or .safetensors", path.string());
}

Matrix read_matrix(const std::filesystem::path& path) {
  check_matrix_name(path);
  F32Array array = is_npy(path) ? read_npy(path) : read_safetensors_array(path);
  check_io(array.shape.size() >= 2, "{}: expected an array [tokens, hidden], got {}", path.string(),
           to_string(array.shape));
  Matrix matrix{1, array.shape.back(), std::move(array.values)};
  for (const std::int64_t dim : std::span(array.shape).first(array.shape.size() - 1)) {
    matrix.rows *= dim;
  }
  return matrix;
}

void write_matrix(const std::filesystem::path& path, const Matrix& matrix) {
  check_matrix_name(path);
  if (is_npy(path)) return write_npy(path, matrix.values, matrix.rows, matrix.cols);
  const auto data = std::as_bytes(std::span<const float>(matrix.values));
  write_safetensors(path, {{"output", {FileDType::f32, {matrix.rows, matrix.cols}, data}}});
}

}  // namespace catamount::io
