// A consumer's way to its staging buffer: wait until it is free, write, hand it to the storer. And
// biases, which lie in shared memory for the length of a tile.
#pragma once

#include "cuda/forward/kernel.h"
#include "cuda/forward/storer.cuh"
#include "cuda/forward/tile.cuh"
#include "cuda/ptx/fence.cuh"

namespace catamount::cuda {

class Staging {
 public:
  __device__ Staging(SharedStorage& s, const Thread& thread)
      : s_(s), thread_(thread), base_(ptx::cvta_shared(s.staging[thread.consumer])) {}

  __device__ void acquire() {
    wait_parity(&s_.staging_empty[thread_.consumer], round_ ^ 1);
    round_ ^= 1;
  }
  __device__ void publish() {
    ptx::fence_proxy_async_shared();
    arrive_warp(&s_.staging_full[thread_.consumer], thread_.lane);
  }

  // BF16 pairs of chunks `chunk` (even) and chunk + 1, of rows row(half, 0) and row(half, 1).
  __device__ void write_h(int half, int chunk, std::uint32_t c0_r0, std::uint32_t c0_r1,
                          std::uint32_t c1_r0, std::uint32_t c1_r1) const {
    constexpr int kChunks = kBoxColumnsH / 8;
    const int row = 64 * half + matrix_row();
    const int c = chunk % kChunks + thread_.lane / 16;
    ptx::stmatrix_x4(base_ + chunk / kChunks * kBoxBytes + row * 64 + (c ^ (row / 2 % 4)) * 16,
                     c0_r0, c0_r1, c1_r0, c1_r1);
  }
  __device__ void write_y(int chunk, std::uint32_t c0_r0, std::uint32_t c0_r1, std::uint32_t c1_r0,
                          std::uint32_t c1_r1) const {
    constexpr int kChunks = kBoxColumnsY / 8;
    const int row = matrix_row();
    const int c = chunk % kChunks + thread_.lane / 16;
    ptx::stmatrix_x4(base_ + chunk / kChunks * kBoxBytes + row * 128 + (c ^ (row % 8)) * 16, c0_r0,
                     c0_r1, c1_r0, c1_r1);
  }

 private:
  // stmatrix: lane i has the address of row i % 8 of matrix i / 8.
  __device__ int matrix_row() const { return 16 * thread_.warp + thread_.lane % 16; }

  SharedStorage& s_;
  Thread thread_;
  std::uint32_t base_;
  std::uint32_t round_ = 0;
};

__device__ inline float load_bias(const DeviceBias& bias, std::int32_t expert,
                                  std::int64_t column) {
  const std::int64_t i = expert * bias.expert_stride + column;
  return bias.is_f32 ? static_cast<const float*>(bias.data)[i]
                     : to_float(static_cast<const Bf16*>(bias.data)[i]);
}

// `scale`: of the thread's two rows of the half. Where a layer has no biases they are zeros, set up
// once: a branch around this would keep wgmma from running ahead.
__device__ __forceinline__ void start_at_bias(const float* bias, const Thread& thread,
                                              const float (&scale)[2], float (&acc)[kSums]) {
#pragma unroll
  for (int chunk = 0; chunk < kTileColumns / 8; ++chunk) {
    const float2 b = *reinterpret_cast<const float2*>(bias + thread.column(chunk));
    acc[4 * chunk + 0] = scale[0] * b.x;
    acc[4 * chunk + 1] = scale[0] * b.y;
    acc[4 * chunk + 2] = scale[1] * b.x;
    acc[4 * chunk + 3] = scale[1] * b.y;
  }
}

// Before the main loop; `of(column)` is the bias of a column of the tile. The shared expert has
// none.
template <class Of>
__device__ inline void stage_bias(const ForwardParams& p, SharedStorage& s, const Mail& mail,
                                  const Thread& thread, const Of& of) {
  if (p.bias_gate.data == nullptr) return;  // all biases or none: validate.cpp
  const auto barrier = static_cast<std::uint32_t>(1 + thread.consumer);
  ptx::bar_sync(barrier, kWarpgroup);  // the tile before has been read
  for (int i = thread.index; i < kTileColumns; i += kWarpgroup) {
    s.bias[thread.consumer][i] = mail.shared ? 0.0F : of(i);
  }
  ptx::bar_sync(barrier, kWarpgroup);
}

}  // namespace catamount::cuda
