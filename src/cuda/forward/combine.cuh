// combine: out[t] = sum over k of weight * y(t, k), k ascending, then the shared expert's row;
// FP32. After the last barrier. One warp a token; the loads of several slots are under way
// together.
#pragma once

#include "cuda/forward/kernel.h"
#include "cuda/forward/tile.cuh"
#include "cuda/ptx/memory.cuh"

namespace catamount::cuda {

// One term of the sum: a row (nullptr: none) and its weight.
struct Term {
  const Bf16* row;
  float weight;
};

__device__ inline Term slot_term(const ForwardParams& p, const Schedule& schedule,
                                 std::int64_t slot) {
  const std::int32_t row = p.routing.slot_row[slot];
  if (row == kMaskedSlot) return {nullptr, 0.0F};
  const float weight = p.router_weight == RouterWeight::in_combine ? p.topk_weights[slot] : 1.0F;
  if (row == kRemoteSlot || schedule.macrobatched()) {
    const auto* home =
        reinterpret_cast<const Bf16*>(p.peers.base[p.peers.rank] + p.home_rows_offset);
    return {home + slot * p.hidden, weight};
  }
  return {p.y_pool + static_cast<std::int64_t>(row) * p.hidden, weight};
}

__device__ inline void add_products(const uint4& v, float weight, float (&sum)[8]) {
  const std::uint32_t pair[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[2 * i] = fmaf(weight, __uint_as_float(pair[i] << 16), sum[2 * i]);
    sum[2 * i + 1] = fmaf(weight, __uint_as_float(pair[i] & 0xFFFF0000U), sum[2 * i + 1]);
  }
}

// The loads of kLoadsAhead slots, kSpans times 256 columns of each, are under way together: enough
// of them cover the latency of memory.
// Terms of slots [0, topk) are spread over the lanes: slot k in lane k % 32, terms[k / 32].
template <int kLoadsAhead, int kSpans>
__device__ inline void sum_token(const ForwardParams& p, const Term (&terms)[2],
                                 const Bf16* shared_row, std::int64_t token, int lane) {
  const auto topk = static_cast<int>(p.topk);
  const int count = topk + (shared_row != nullptr ? 1 : 0);
  const auto hidden = static_cast<int>(p.hidden);
  for (int first = 0; first < hidden; first += kSpans * 256) {
    float sum[kSpans][8] = {};
    for (int k0 = 0; k0 < count; k0 += kLoadsAhead) {
      uint4 values[kLoadsAhead][kSpans];
      float weights[kLoadsAhead];
#pragma unroll
      for (int i = 0; i < kLoadsAhead; ++i) {
        const int k = k0 + i;
        const Bf16* mine = k < 32 ? terms[0].row : terms[1].row;
        auto row = reinterpret_cast<const Bf16*>(
            __shfl_sync(0xFFFFFFFF, reinterpret_cast<unsigned long long>(mine), k % 32));
        weights[i] = __shfl_sync(0xFFFFFFFF, k < 32 ? terms[0].weight : terms[1].weight, k % 32);
        if (k >= topk) {
          row = k == topk ? shared_row : nullptr;
          weights[i] = 1.0F;
        }
#pragma unroll
        for (int span = 0; span < kSpans; ++span) {
          const int column = first + span * 256 + lane * 8;
          values[i][span] =
              row != nullptr && column < hidden ? ptx::ld_no_allocate(row + column) : uint4{};
        }
      }
#pragma unroll
      for (int i = 0; i < kLoadsAhead; ++i) {
#pragma unroll
        for (int span = 0; span < kSpans; ++span) {
          add_products(values[i][span], weights[i], sum[span]);
        }
      }
    }
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      const int column = first + span * 256 + lane * 8;
      const float* v = sum[span];
      if (column < hidden) {
        *reinterpret_cast<uint4*>(p.out + token * p.hidden + column) =
            uint4{ptx::cvt_bf16x2(v[0], v[1]), ptx::cvt_bf16x2(v[2], v[3]),
                  ptx::cvt_bf16x2(v[4], v[5]), ptx::cvt_bf16x2(v[6], v[7])};
      }
    }
  }
}

__device__ inline void combine(const ForwardParams& p, const Schedule& schedule, const Mail& mail,
                               const Thread& thread) {
  const std::int64_t chunk = schedule.config.tokens_per_sum;
  const std::int64_t begin = mail.n * chunk;
  const std::int64_t end = begin + chunk < p.tokens ? begin + chunk : p.tokens;
  for (std::int64_t token = begin + thread.warp; token < end; token += 4) {
    Term terms[2] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t k = 32 * i + thread.lane;
      if (k < p.topk) terms[i] = slot_term(p, schedule, token * p.topk + k);
    }
    const Bf16* shared_row = p.shared_intermediate > 0 ? p.shared_y + token * p.hidden : nullptr;
    if (p.topk <= 4) {
      sum_token<4, 8>(p, terms, shared_row, token, thread.lane);
    } else {
      sum_token<8, 4>(p, terms, shared_row, token, thread.lane);
    }
  }
}

}  // namespace catamount::cuda
