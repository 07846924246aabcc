// wgmma: matrix products of a warpgroup, operands in shared memory, sums in registers.
#pragma once

#include <cstdint>

#include "cuda/ptx/memory.cuh"
#include "cuda/ptx/wgmma_instructions.cuh"

namespace catamount::cuda::ptx {

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// All but the latest kPending groups are done.
template <int kPending>
__device__ inline void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Matrix descriptor of K-major rows of 128 bytes under the 128-byte swizzle: row groups of 8 lie
// 1024 bytes apart. Moving by 16 elements of K adds 32 bytes to the address, by 64 rows 8192.
__device__ inline std::uint64_t matrix_descriptor(const void* tile) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kStrideOffset = std::uint64_t{1024 / 16} << 32;
  constexpr std::uint64_t kLeadingOffset = std::uint64_t{1} << 16;  // not used when swizzled
  return kSwizzle128 | kStrideOffset | kLeadingOffset | (cvta_shared(tile) & 0x3FFFF) / 16;
}

}  // namespace catamount::cuda::ptx
