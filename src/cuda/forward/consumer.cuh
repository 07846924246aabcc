// A consumer warpgroup: every other task of its CTA, main loop and epilogue. While one consumer is
// in its epilogue the other one has the tensor cores.
#pragma once

#include "cuda/device/mailbox.cuh"
#include "cuda/forward/combine.cuh"
#include "cuda/forward/down.cuh"
#include "cuda/forward/gate_up.cuh"

namespace catamount::cuda {

// One shape of tile from its first product to its last store. What can be done before the tensor
// cores are free is.
template <Stage kStage, int kHalves, class Columns>
__device__ __forceinline__ void run_shape(const ForwardParams& p, SharedStorage& s,
                                          const Mail& mail, const Thread& thread, Turn& turn,
                                          Staging& staging) {
  float acc0[kSums];
  float acc1[kSums];
  if constexpr (kStage == Stage::gate_up) {
    start_gate_up<kHalves>(p, s, mail, thread, acc0, acc1);
  } else {
    start_down<kHalves>(p, s, mail, thread, acc0, acc1);
  }
  multiply<kHalves, Columns>(s, mail, thread, turn, acc0, acc1);
  if constexpr (kStage == Stage::gate_up) {
    finish_gate_up<kHalves>(p, mail, thread, staging, acc0, acc1);
  } else {
    finish_half(staging, acc0);
    if constexpr (kHalves == 2) finish_half(staging, acc1);
  }
}

__device__ __forceinline__ void run_tile(const ForwardParams& p, SharedStorage& s, const Mail& mail,
                                         const Thread& thread, Turn& turn, Staging& staging) {
  const bool both = mail.valid_rows > kHalfRows;
  if (mail.stage == Stage::gate_up) {
    const std::int64_t width = mail.shared ? p.shared_intermediate : p.intermediate;
    const std::int64_t columns = width - mail.n * kGateColumns;
    if (!both) {
      run_shape<Stage::gate_up, 1, FullWidth>(p, s, mail, thread, turn, staging);
    } else if (columns > 32) {
      run_shape<Stage::gate_up, 2, FullWidth>(p, s, mail, thread, turn, staging);
    } else {
      run_shape<Stage::gate_up, 2, Width<2, 32>>(p, s, mail, thread, turn, staging);
    }
  } else {
    const std::int64_t columns = p.hidden - mail.n * kTileColumns;
    if (!both) {
      run_shape<Stage::down, 1, FullWidth>(p, s, mail, thread, turn, staging);
    } else if (columns > 128) {
      run_shape<Stage::down, 2, FullWidth>(p, s, mail, thread, turn, staging);
    } else if (columns > 64) {
      run_shape<Stage::down, 2, Width<1, 128>>(p, s, mail, thread, turn, staging);
    } else {
      run_shape<Stage::down, 2, Width<1, 64>>(p, s, mail, thread, turn, staging);
    }
  }
}

__device__ __forceinline__ void run_consumer(const ForwardParams& p, SharedStorage& s,
                                             const Thread& thread) {
  Staging staging(s, thread);
  Turn turn(s, thread);
  for (auto i = static_cast<std::uint32_t>(thread.consumer);; i += kConsumers) {
    const Mail& mail = receive(s, i);
    if (mail.stop) return;
    if (mail.idle) {
      skip_tile(s, mail, thread, turn);
    } else if (mail.stage == Stage::combine) {
      turn.take();
      turn.pass();
      combine(p, s.schedule, mail, thread);
    } else {
      run_tile(p, s, mail, thread, turn, staging);
    }
    release(s, i);
  }
}

}  // namespace catamount::cuda
