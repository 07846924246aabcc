// Bulk async copies (cp.async.bulk): tensors through a map, and plain rows.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/ptx/memory.cuh"

namespace catamount::cuda::ptx {

__device__ inline void prefetch_tensormap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ inline void cp_async_bulk_tensor_load_2d(void* to, const CUtensorMap* map,
                                                    std::uint64_t* barrier, std::int32_t x,
                                                    std::int32_t y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(cvta_shared(to)),
      "l"(map), "r"(cvta_shared(barrier)), "r"(x), "r"(y)
      : "memory");
}

__device__ inline void cp_async_bulk_tensor_load_3d(void* to, const CUtensorMap* map,
                                                    std::uint64_t* barrier, std::int32_t x,
                                                    std::int32_t y, std::int32_t z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(cvta_shared(to)),
      "l"(map), "r"(cvta_shared(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

// Into the same place in the shared memory of every CTA whose bit is set in `ctas`; each CTA's own
// barrier counts its copy.
__device__ inline void cp_async_bulk_tensor_load_multicast_3d(void* to, const CUtensorMap* map,
                                                              std::uint64_t* barrier,
                                                              std::int32_t x, std::int32_t y,
                                                              std::int32_t z, std::uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(cvta_shared(to)),
      "l"(map), "r"(cvta_shared(barrier)), "r"(x), "r"(y), "r"(z), "h"(ctas)
      : "memory");
}

__device__ inline void cp_async_bulk_tensor_store_2d(const CUtensorMap* map, std::int32_t x,
                                                     std::int32_t y, const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(cvta_shared(from)), "r"(x), "r"(y)
      : "memory");
}

// What is not read again soon, and goes first when the L2 cache needs room.
__device__ inline std::uint64_t evict_first_policy() {
  std::uint64_t policy = 0;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ inline void cp_async_bulk_tensor_store_2d(const CUtensorMap* map, std::int32_t x,
                                                     std::int32_t y, const void* from,
                                                     std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint "
      "[%0, {%2, %3}], [%1], %4;" ::"l"(map),
      "r"(cvta_shared(from)), "r"(x), "r"(y), "l"(policy)
      : "memory");
}

__device__ inline void cp_async_bulk_tensor_store_3d(const CUtensorMap* map, std::int32_t x,
                                                     std::int32_t y, std::int32_t z,
                                                     const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
          map),
      "r"(cvta_shared(from)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

// Addresses and size are multiples of 16.
__device__ inline void cp_async_bulk_load(void* to, const void* from, std::uint32_t bytes,
                                          std::uint64_t* barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(cvta_shared(to)),
      "l"(from), "r"(bytes), "r"(cvta_shared(barrier)), "l"(policy)
      : "memory");
}

__device__ inline void cp_async_bulk_store(void* to, const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(cvta_shared(from)), "r"(bytes)
               : "memory");
}

__device__ inline void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// All but the latest kPending groups have been written.
template <int kPending>
__device__ inline void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// ... have left shared memory.
template <int kPending>
__device__ inline void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace catamount::cuda::ptx
