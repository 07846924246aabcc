// down: a tile of h W_down^T + bias, rounded to BF16 rows of y, staged 64 rows at a time.
#pragma once

#include "cuda/forward/gate_up.cuh"

namespace catamount::cuda {

__device__ inline void stage_down_bias(const ForwardParams& p, SharedStorage& s, const Mail& mail,
                                       const Thread& thread) {
  const std::int32_t first = mail.n * kTileColumns;
  const std::int32_t expert = mail.expert;
  stage_bias(s, thread, [&](int i) {
    return first + i < p.hidden ? load_bias(p.bias_down, expert, first + i) : 0.0F;
  });
}

__device__ inline void finish_half(const ForwardParams& p, SharedStorage& s, const Mail& mail,
                                   const Thread& thread, Staging& staging, int half,
                                   float (&acc)[kSums]) {
  if (p.bias_down.data != nullptr && !mail.shared) {
    float weight[2];
    load_row_weights(p, mail, thread, half, weight);
    add_bias(s.bias[thread.consumer], thread, weight, acc);
  }
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
