// CTAs of a cluster: ranks, addresses in each other's shared memory, barriers.
#pragma once

#include <cstdint>

#include "cuda/ptx/memory.cuh"

namespace catamount::cuda::ptx {

__device__ inline std::uint32_t cluster_ctarank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The shared::cluster address of CTA `rank`'s copy of a shared variable.
__device__ inline std::uint32_t mapa(const void* pointer, std::uint32_t rank) {
  std::uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(cvta_shared(pointer)), "r"(rank));
  return address;
}

__device__ inline void barrier_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

__device__ inline void barrier_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// `barrier`: a shared::cluster address. Not `.release.cluster`: see mbarrier.cuh.
__device__ inline void mbarrier_arrive_cluster(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// 8 bytes into a CTA's shared memory, counted by a barrier there.
__device__ inline void st_async(std::uint32_t to, std::int64_t value, std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to),
      "l"(value), "r"(barrier)
      : "memory");
}

}  // namespace catamount::cuda::ptx
