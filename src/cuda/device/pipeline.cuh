// Positions in rings of mbarriers, and waiting for one. A ring's slot is full, then empty, then
// full: full phase k of a slot is awaited with parity k & 1, empty phase k - 1 with (k & 1) ^ 1.
#pragma once

#include <cstdint>

#include "cuda/ptx/mbarrier.cuh"

namespace catamount::cuda {

__device__ inline void wait_parity(std::uint64_t* barrier, std::uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(barrier, parity)) {
  }
}

template <int kSlots>
struct RingPosition {
  std::uint32_t slot;
  std::uint32_t phase;

  __device__ explicit RingPosition(std::uint32_t index = 0)
      : slot(index % kSlots), phase(index / kSlots & 1) {}
  __device__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      phase ^= 1;
    }
  }
};

// All earlier writes of the warp's lanes come before the arrival.
__device__ inline void arrive_warp(std::uint64_t* barrier, int lane) {
  __syncwarp();
  if (lane == 0) ptx::mbarrier_arrive(barrier);
}

}  // namespace catamount::cuda
