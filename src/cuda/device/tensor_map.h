// Encoding tensor maps: BF16 tensors of up to 3 dimensions, innermost first.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>

namespace catamount::cuda {

struct MapShape {
  std::array<std::int64_t, 3> size;    // elements; a size of 0 counts as 1
  std::array<std::int64_t, 2> stride;  // of dimensions 1 and 2, in elements
  std::array<int, 3> box;
  CUtensorMapSwizzle swizzle;
};

// Parts of a box beyond the tensor read as zero and are not written. `dims` is 2 or 3.
cudaError_t make_tensor_map(CUtensorMap* map, const void* data, int dims, const MapShape& shape);

}  // namespace catamount::cuda
