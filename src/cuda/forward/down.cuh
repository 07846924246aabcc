// down: a tile of h W_down^T + bias, rounded to BF16 rows of y, staged 64 rows at a time.
#pragma once

#include "cuda/forward/gate_up.cuh"

namespace catamount::cuda {

template <int kHalves>
__device__ __forceinline__ void start_down(const ForwardParams& p, SharedStorage& s,
                                           const Mail& mail, const Thread& thread,
                                           float (&acc0)[kSums], float (&acc1)[kSums]) {
  stage_bias(p, s, mail, thread, [&](int i) {
    const std::int64_t column = mail.n * kTileColumns + i;
    return column < p.hidden ? load_bias(p.bias_down, mail.expert, column) : 0.0F;
  });
  float weight[2];
  load_row_weights(p, mail, thread, 0, weight);
  start_at_bias(s.bias[thread.consumer], thread, weight, acc0);
  if constexpr (kHalves == 2) {
    load_row_weights(p, mail, thread, 1, weight);
    start_at_bias(s.bias[thread.consumer], thread, weight, acc1);
  }
}

__device__ __forceinline__ void finish_half(Staging& staging, const float (&acc)[kSums]) {
  staging.acquire();
#pragma unroll
  for (int chunk = 0; chunk < kTileColumns / 8; chunk += 2) {
    const float* v = acc + 4 * chunk;
    staging.write_y(chunk, ptx::cvt_bf16x2(v[0], v[1]), ptx::cvt_bf16x2(v[2], v[3]),
                    ptx::cvt_bf16x2(v[4], v[5]), ptx::cvt_bf16x2(v[6], v[7]));
  }
  staging.publish();
}

}  // namespace catamount::cuda
