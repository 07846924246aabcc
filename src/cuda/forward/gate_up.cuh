// gate_up: a tile of x [W_gate; W_up]^T + bias, swiglu, h. Columns 0-95 of the accumulator are
// gate's, 96-191 the same columns of up: chunk c and chunk c + 12 lie in the same thread.
#pragma once

#include "core/swiglu.h"
#include "cuda/forward/staging.cuh"

namespace catamount::cuda {

inline constexpr int kGateChunks = kGateColumns / 8;

// kPlain: SiLU(gate) up, without clamp, alpha and offset.
__device__ inline bool is_plain(const Swiglu& p) {
  return p.alpha == 1.0F && p.up_offset == 0.0F && !clamps(p.limit);
}
template <bool kPlain>
__device__ inline float fast_swiglu(float gate, float up, const Swiglu& p) {
  constexpr float kLog2E = 1.4426950408889634F;
  const float g = kPlain ? gate : clamp_gate(gate, p);
  const float scale = kPlain ? -kLog2E : -kLog2E * p.alpha;
  const float sigmoid = ptx::rcp_approx(1.0F + ptx::ex2_approx(scale * g));
  return g * sigmoid * (kPlain ? up : clamp_up(up, p) + p.up_offset);
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
__device__ __forceinline__ void start_gate_up(const ForwardParams& p, SharedStorage& s,
                                              const Mail& mail, const Thread& thread,
                                              float (&acc0)[kSums], float (&acc1)[kSums]) {
  stage_bias(p, s, mail, thread, [&](int i) {
    const bool up = i >= kGateColumns;
    const std::int64_t column = mail.n * kGateColumns + (up ? i - kGateColumns : i);
    return column < p.intermediate ? load_bias(up ? p.bias_up : p.bias_gate, mail.expert, column)
                                   : 0.0F;
  });
  const float ones[2] = {1.0F, 1.0F};
  start_at_bias(s.bias[thread.consumer], thread, ones, acc0);
  if constexpr (kHalves == 2) start_at_bias(s.bias[thread.consumer], thread, ones, acc1);
}

// Rounds gate (plane 0) or up of one half into staging.
template <int kPlane, bool kClamped>
__device__ __forceinline__ void write_pre_activations(const Staging& staging, int half,
                                                      const ClampEdge& edge,
                                                      const float (&acc)[kSums]) {
#pragma unroll
  for (int chunk = 0; chunk < kGateChunks; chunk += 2) {
    const float* v = acc + 4 * (kPlane * kGateChunks + chunk);
    std::uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      packed[i] = kClamped ? ptx::cvt_bf16x2(edge.keep_side(v[2 * i]), edge.keep_side(v[2 * i + 1]))
                           : ptx::cvt_bf16x2(v[2 * i], v[2 * i + 1]);
    }
    staging.write_h(half, chunk, packed[0], packed[1], packed[2], packed[3]);
  }
}

template <int kHalves, int kPlane>
__device__ __forceinline__ void keep_plane(Staging& staging, const ClampEdge& edge,
                                           const float (&acc0)[kSums], const float (&acc1)[kSums]) {
  staging.acquire();
  if (clamps(edge.limit)) {
    write_pre_activations<kPlane, true>(staging, 0, edge, acc0);
    if constexpr (kHalves == 2) write_pre_activations<kPlane, true>(staging, 1, edge, acc1);
  } else {
    write_pre_activations<kPlane, false>(staging, 0, edge, acc0);
    if constexpr (kHalves == 2) write_pre_activations<kPlane, false>(staging, 1, edge, acc1);
  }
  staging.publish();
}

template <bool kPlain>
__device__ __forceinline__ void write_h(const Staging& staging, int half, const Swiglu& swiglu,
                                        const float (&weight)[2], const float (&acc)[kSums]) {
#pragma unroll
  for (int chunk = 0; chunk < kGateChunks; chunk += 2) {
    std::uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 4 * chunk + 2 * i;
      const float w = weight[i % 2];
      packed[i] = ptx::cvt_bf16x2(
          w * fast_swiglu<kPlain>(acc[at], acc[at + 4 * kGateChunks], swiglu),
          w * fast_swiglu<kPlain>(acc[at + 1], acc[at + 1 + 4 * kGateChunks], swiglu));
    }
    staging.write_h(half, chunk, packed[0], packed[1], packed[2], packed[3]);
  }
}

template <int kHalves>
__device__ __forceinline__ void finish_gate_up(const ForwardParams& p, const Mail& mail,
                                               const Thread& thread, Staging& staging,
                                               float (&acc0)[kSums], float (&acc1)[kSums]) {
  constexpr bool kBoth = kHalves == 2;
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
  if (is_plain(swiglu)) {
    write_h<true>(staging, 0, swiglu, weight0, acc0);
    if constexpr (kBoth) write_h<true>(staging, 1, swiglu, weight1, acc1);
  } else {
    write_h<false>(staging, 0, swiglu, weight0, acc0);
    if constexpr (kBoth) write_h<false>(staging, 1, swiglu, weight1, acc1);
  }
  staging.publish();
}

}  // namespace catamount::cuda
