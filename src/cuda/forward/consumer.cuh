// A consumer warpgroup: every other task of its CTA, main loop and epilogue. While one consumer is
// in its epilogue the other one has the tensor cores.
#pragma once

#include "cuda/device/mailbox.cuh"
#include "cuda/forward/combine.cuh"
#include "cuda/forward/down.cuh"
#include "cuda/forward/gate_up.cuh"

namespace catamount::cuda {

// One shape of tile from its first product to its last store.
template <Stage kStage, int kHalves, class Columns>
__device__ inline void run_shape(const ForwardParams& p, SharedStorage& s, const Mail& mail,
                                 const Thread& thread, Staging& staging) {
  float acc0[kSums];
  float acc1[kSums];
  multiply<kHalves, Columns>(s, mail, thread, acc0, acc1);
  if constexpr (kStage == Stage::gate_up) {
    finish_gate_up<kHalves>(p, s, mail, thread, staging, acc0, acc1);
  } else {
    finish_half(p, s, mail, thread, staging, 0, acc0);
    if constexpr (kHalves == 2) finish_half(p, s, mail, thread, staging, 1, acc1);
  }
}

__device__ inline void run_tile(const ForwardParams& p, SharedStorage& s, const Mail& mail,
                                const Thread& thread, Staging& staging) {
  const bool both = mail.valid_rows > kHalfRows;
  if (mail.stage == Stage::gate_up) {
    if (!mail.shared && p.bias_gate.data != nullptr) stage_gate_up_bias(p, s, mail, thread);
    const std::int64_t width = mail.shared ? p.shared_intermediate : p.intermediate;
    const std::int64_t columns = width - mail.n * kGateColumns;
    if (!both) {
      run_shape<Stage::gate_up, 1, FullWidth>(p, s, mail, thread, staging);
    } else if (columns > 32) {
      run_shape<Stage::gate_up, 2, FullWidth>(p, s, mail, thread, staging);
    } else {
      run_shape<Stage::gate_up, 2, Width<2, 32>>(p, s, mail, thread, staging);
    }
  } else {
    if (!mail.shared && p.bias_down.data != nullptr) stage_down_bias(p, s, mail, thread);
    const std::int64_t columns = p.hidden - mail.n * kTileColumns;
    if (!both) {
      run_shape<Stage::down, 1, FullWidth>(p, s, mail, thread, staging);
    } else if (columns > 128) {
      run_shape<Stage::down, 2, FullWidth>(p, s, mail, thread, staging);
    } else if (columns > 64) {
      run_shape<Stage::down, 2, Width<1, 128>>(p, s, mail, thread, staging);
    } else {
      run_shape<Stage::down, 2, Width<1, 64>>(p, s, mail, thread, staging);
    }
  }
}

__device__ inline void run_consumer(const ForwardParams& p, SharedStorage& s,
                                    const Thread& thread) {
  Staging staging(s, thread);
  std::uint32_t turn = static_cast<std::uint32_t>(thread.consumer) ^ 1;
  for (auto i = static_cast<std::uint32_t>(thread.consumer);; i += kConsumers, turn ^= 1) {
    const Mail& mail = receive(s, i);
    if (mail.stop) return;
    // The operand ring's parities are unambiguous once the other consumer's last K block is in.
    wait_parity(&s.turn[thread.consumer], turn);
    if (mail.idle) {
      skip_tile(s, mail, thread);
    } else if (mail.stage == Stage::combine) {
      if (thread.lane == 0) ptx::mbarrier_arrive(&s.turn[1 - thread.consumer]);
      combine(p, s.schedule, mail, thread);
    } else {
      run_tile(p, s, mail, thread, staging);
    }
    __syncwarp();
    if (thread.lane == 0) release(s, i);
  }
}

}  // namespace catamount::cuda
