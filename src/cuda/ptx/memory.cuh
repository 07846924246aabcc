// Loads, stores and reductions with an order or a cache hint; shared addresses; stmatrix; clocks.
#pragma once

#include <cstdint>

namespace catamount::cuda::ptx {

__device__ inline std::uint32_t cvta_shared(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline std::uint32_t ld_acquire_gpu(const std::uint32_t* p) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}

__device__ inline std::uint32_t ld_relaxed_gpu(const std::uint32_t* p) {
  std::uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}

__device__ inline std::uint64_t ld_acquire_sys(const std::uint64_t* p) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
  return value;
}

__device__ inline void st_release_sys(std::uint64_t* p, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

__device__ inline void red_release_gpu_add(std::uint32_t* p, std::uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

__device__ inline std::uint32_t atom_acq_rel_gpu_add(std::uint32_t* p, std::uint32_t value) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(p), "r"(value)
               : "memory");
  return before;
}

__device__ inline unsigned long long atom_relaxed_gpu_add(unsigned long long* p,
                                                          unsigned long long value) {
  unsigned long long before;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(p), "l"(value)
               : "memory");
  return before;
}

__device__ inline std::uint32_t atom_relaxed_gpu_exch(std::uint32_t* p, std::uint32_t value) {
  std::uint32_t before;
  asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(p), "r"(value)
               : "memory");
  return before;
}

// 16 bytes that are read once: not kept in L1.
__device__ inline uint4 ld_no_allocate(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

__device__ inline void stmatrix_x4(std::uint32_t address, std::uint32_t a, std::uint32_t b,
                                   std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// Two floats to BF16, round to nearest even: `low` in the low half.
__device__ inline std::uint32_t cvt_bf16x2(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ inline float ex2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline std::uint64_t globaltimer() {
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

__device__ inline void nanosleep(std::uint32_t ns) { asm volatile("nanosleep.u32 %0;" ::"r"(ns)); }

}  // namespace catamount::cuda::ptx
