// mbarrier instructions, one a function; names as in PTX. Addresses are shared::cta.
//
// Never `.release.cluster`: it puts a MEMBAR.ALL.GPU before the arrival.
#pragma once

#include <cstdint>

#include "cuda/ptx/memory.cuh"

namespace catamount::cuda::ptx {

__device__ inline void mbarrier_init(std::uint64_t* barrier, std::uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(cvta_shared(barrier)), "r"(count)
               : "memory");
}

__device__ inline void mbarrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(cvta_shared(barrier)) : "memory");
}

__device__ inline void mbarrier_arrive_expect_tx(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(cvta_shared(barrier)),
               "r"(bytes)
               : "memory");
}

__device__ inline bool mbarrier_try_wait_parity(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(done)
      : "r"(cvta_shared(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

}  // namespace catamount::cuda::ptx
