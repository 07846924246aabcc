#include "catamount/tensor.h"

namespace catamount {

std::size_t dtype_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::u8:
      return 1;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
    case DType::i64:
      return 8;
  }
  return 0;
}

const char* to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
  }
  return "unknown";
}

std::string to_string(const ConstTensorView& tensor) {
  if (!tensor.present()) return "absent";
  std::string text = std::string(to_string(tensor.dtype)) + "[";
  for (int i = 0; i < tensor.num_dims; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(tensor.shape[static_cast<std::size_t>(i)]);
  }
  return text + "]";
}

}  // namespace catamount
