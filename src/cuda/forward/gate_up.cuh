// gate_up: a tile of x [W_gate; W_up]^T + bias, swiglu, h. Columns 0-95 of the accumulator are
// gate's, 96-191 the same columns of up: chunk c and chunk c + 12 lie in the same thread.
#pragma once

#include "core/swiglu.h"
#include "cuda/forward/staging.cuh"

namespace catamount::cuda {

inline constexpr int kGateChunks = kGateColumns / 8;

__device__ inline float fast_swiglu(float gate, float up, const Swiglu& p) {
  constexpr float kLog2E = 1.4426950408889634F;
  const float g = clamp_gate(gate, p);
  const float sigmoid = ptx::rcp_approx(1.0F + ptx::ex2_approx(-kLog2E * (p.alpha * g)));
  return g * sigmoid * (clamp_up(up, p) + p.up_offset);
}

__device__ inline void stage_gate_up_bias(const ForwardParams& p, SharedStorage& s,
                                          const Mail& mail, const Thread& thread) {
  const std::int32_t first = mail.n * kGateColumns;
  const std::int32_t expert = mail.expert;
  stage_bias(s, thread, [&](int i) {
    const bool up = i >= kGateColumns;
    const std::int64_t column = first + (up ? i - kGateColumns : i);
    return column < p.intermediate ? load_bias(up ? p.bias_up : p.bias_gate, expert, column) : 0.0F;
  });
}

// Adds biases of the thread's columns to one half.
__device__ inline void add_bias(const float* bias, const Thread& thread, const float (&scale)[2],
                                float (&acc)[kSums]) {
#pragma unroll
  for (int chunk = 0; chunk < kTileColumns / 8; ++chunk) {
    const float2 b = *reinterpret_cast<const float2*>(bias + thread.column(chunk));
    acc[4 * chunk + 0] += scale[0] * b.x;
    acc[4 * chunk + 1] += scale[0] * b.y;
    acc[4 * chunk + 2] += scale[1] * b.x;
    acc[4 * chunk + 3] += scale[1] * b.y;
  }
}

// Rounds gate (plane 0) or up of one half into staging.
template <int kPlane>
__device__ inline void write_pre_activations(const Staging& staging, int half,
                                             const ClampEdge& edge, const float (&acc)[kSums]) {
#pragma unroll
  for (int chunk = 0; chunk < kGateChunks; chunk += 2) {
    const float* v = acc + 4 * (kPlane * kGateChunks + chunk);
    std::uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      packed[i] = ptx::cvt_bf16x2(edge.keep_side(v[2 * i]), edge.keep_side(v[2 * i + 1]));
    }
    staging.write_h(half, chunk, packed[0], packed[1], packed[2], packed[3]);
  }
}

template <int kHalves, int kPlane>
__device__ inline void keep_plane(Staging& staging, const ClampEdge& edge,
                                  const float (&acc0)[kSums], const float (&acc1)[kSums]) {
  staging.acquire();
  write_pre_activations<kPlane>(staging, 0, edge, acc0);
  if constexpr (kHalves == 2) write_pre_activations<kPlane>(staging, 1, edge, acc1);
  staging.publish();
}

__device__ inline void write_h(const Staging& staging, int half, const Swiglu& swiglu,
                               const float (&weight)[2], const float (&acc)[kSums]) {
#pragma unroll
  for (int chunk = 0; chunk < kGateChunks; chunk += 2) {
    std::uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 4 * chunk + 2 * i;
      const float w = weight[i % 2];
      packed[i] =
          ptx::cvt_bf16x2(w * fast_swiglu(acc[at], acc[at + 4 * kGateChunks], swiglu),
                          w * fast_swiglu(acc[at + 1], acc[at + 1 + 4 * kGateChunks], swiglu));
    }
    staging.write_h(half, chunk, packed[0], packed[1], packed[2], packed[3]);
  }
}

// Router weights of the thread's two rows of a half; padding has weight 0.
__device__ inline void load_row_weights(const ForwardParams& p, const Mail& mail,
                                        const Thread& thread, int half, float (&weight)[2]) {
  const bool weighted = p.router_weight == RouterWeight::before_down && !mail.shared;
  const float* rows = p.routing.row_weight + static_cast<std::int64_t>(mail.block) * kBlockRows;
#pragma unroll
  for (int i = 0; i < 2; ++i) weight[i] = weighted ? rows[thread.row(half, i)] : 1.0F;
}

template <int kHalves>
__device__ inline void finish_gate_up(const ForwardParams& p, SharedStorage& s, const Mail& mail,
                                      const Thread& thread, Staging& staging, float (&acc0)[kSums],
                                      float (&acc1)[kSums]) {
  constexpr bool kBoth = kHalves == 2;
  if (p.bias_gate.data != nullptr && !mail.shared) {
    const float ones[2] = {1.0F, 1.0F};
    const float* bias = s.bias[thread.consumer];
    add_bias(bias, thread, ones, acc0);
    if constexpr (kBoth) add_bias(bias, thread, ones, acc1);
  }
  if (mail.keep) {
    const ClampEdge edge(p.swiglu.limit);
    keep_plane<kHalves, 0>(staging, edge, acc0, acc1);
    keep_plane<kHalves, 1>(staging, edge, acc0, acc1);
  }
  float weight0[2];
  float weight1[2];
  load_row_weights(p, mail, thread, 0, weight0);
  load_row_weights(p, mail, thread, 1, weight1);
  const Swiglu swiglu = p.swiglu;
  staging.acquire();
  write_h(staging, 0, swiglu, weight0, acc0);
  if constexpr (kBoth) write_h(staging, 1, swiglu, weight1, acc1);
  staging.publish();
}

}  // namespace catamount::cuda
