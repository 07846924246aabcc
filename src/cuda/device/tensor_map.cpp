#include "cuda/device/tensor_map.h"

#include <algorithm>

namespace catamount::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's entry point, found at run time: the library does not link libcuda.
Encode find_encode() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                             12000, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Encode>(entry);
}

}  // namespace

cudaError_t make_tensor_map(CUtensorMap* map, const void* data, int dims, const MapShape& shape) {
  static const Encode encode = find_encode();
  if (encode == nullptr) return cudaErrorNotSupported;
  std::array<cuuint64_t, 3> size{};
  std::array<cuuint64_t, 2> stride{};
  std::array<cuuint32_t, 3> box{};
  constexpr std::array<cuuint32_t, 3> kDense{1, 1, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    size[i] = static_cast<cuuint64_t>(std::max<std::int64_t>(shape.size[i], 1));
    box[i] = static_cast<cuuint32_t>(shape.box[i]);
    if (i < 2) stride[i] = static_cast<cuuint64_t>(2 * shape.stride[i]);
  }
  const CUresult result = encode(
      map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(dims), const_cast<void*>(data),
      size.data(), stride.data(), box.data(), kDense.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      shape.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace catamount::cuda
