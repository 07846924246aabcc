// Fences between the generic and the async proxy, and named barriers of a part of a CTA.
#pragma once

#include <cstdint>

namespace catamount::cuda::ptx {

// Shared and global memory.
__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

__device__ inline void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void fence_acq_rel_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ inline void bar_sync(std::uint32_t barrier, std::uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace catamount::cuda::ptx
