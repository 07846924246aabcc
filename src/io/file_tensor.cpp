#include "io/file_tensor.h"

#include <array>

namespace catamount::io {
namespace {

struct DTypeRow {
  const char* name;
  int bits;
};
constexpr std::array kDTypes = {
    DTypeRow{"BOOL", 8},    DTypeRow{"F4", 4},   DTypeRow{"F6_E2M3", 6}, DTypeRow{"F6_E3M2", 6},
    DTypeRow{"U8", 8},      DTypeRow{"I8", 8},   DTypeRow{"F8_E5M2", 8}, DTypeRow{"F8_E4M3", 8},
    DTypeRow{"F8_E8M0", 8}, DTypeRow{"I16", 16}, DTypeRow{"U16", 16},    DTypeRow{"F16", 16},
    DTypeRow{"BF16", 16},   DTypeRow{"I32", 32}, DTypeRow{"U32", 32},    DTypeRow{"F32", 32},
    DTypeRow{"C64", 64},    DTypeRow{"F64", 64}, DTypeRow{"I64", 64},    DTypeRow{"U64", 64},
};
static_assert(kDTypes.size() == static_cast<std::size_t>(FileDType::u64) + 1);

}  // namespace

int dtype_bits(FileDType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)].bits; }

const char* to_string(FileDType dtype) noexcept {
  return kDTypes[static_cast<std::size_t>(dtype)].name;
}

std::optional<FileDType> dtype_from_name(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (name == kDTypes[i].name) return static_cast<FileDType>(i);
  }
  return std::nullopt;
}

std::optional<std::size_t> tensor_bytes(FileDType dtype, std::span<const std::int64_t> shape) {
  std::int64_t size = dtype_bits(dtype);
  for (const std::int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(size, dim, &size)) return std::nullopt;
  }
  if (size % 8 != 0) return std::nullopt;
  return static_cast<std::size_t>(size / 8);
}

std::string to_string(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + "]";
}

std::string to_string(const FileTensor& tensor) {
  return std::string(to_string(tensor.dtype)) + to_string(tensor.shape);
}

}  // namespace catamount::io
