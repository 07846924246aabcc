// The loader: one lane that keeps the operand ring full, task after task.
#pragma once

#include "cuda/device/mailbox.cuh"
#include "cuda/forward/kernel.h"
#include "cuda/ptx/fence.cuh"
#include "cuda/ptx/tma.cuh"

namespace catamount::cuda {

__device__ inline void load_operands(const ForwardParams& p, SharedStorage& s, const Mail& mail) {
  const ExpertMaps& maps = mail.shared ? p.shared : p.routed;
  const bool gate_up = mail.stage == Stage::gate_up;
  const CUtensorMap* map_a = !gate_up ? &maps.h_load : mail.kept_x ? &maps.x_kept : &maps.x;
  const std::int32_t plane = mail.shared ? 0 : mail.expert;
  const std::int32_t row = mail.row;
  const std::int32_t column = mail.n * (gate_up ? kGateColumns : kTileColumns);
  RingPosition<kStages> at(mail.ring);
  for (std::int32_t k = 0; k < mail.k_blocks; ++k, at.advance()) {
    std::uint64_t* full = &s.full[at.slot];
    wait_parity(&s.empty[at.slot], at.phase ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, kBytesA + kBytesB);
    ptx::cp_async_bulk_tensor_load_2d(s.a[at.slot], map_a, full, k * kBlockK, row);
    std::byte* b = s.b[at.slot];
    if (gate_up) {
      ptx::cp_async_bulk_tensor_load_3d(b, &maps.gate, full, k * kBlockK, column, plane);
      ptx::cp_async_bulk_tensor_load_3d(b + kBytesB / 2, &maps.up, full, k * kBlockK, column,
                                        plane);
    } else {
      ptx::cp_async_bulk_tensor_load_3d(b, &maps.down, full, k * kBlockK, column, plane);
    }
  }
}

__device__ inline void run_loader(const ForwardParams& p, SharedStorage& s) {
  for (std::uint32_t i = 0;; ++i) {
    const Mail& mail = receive(s, i);
    if (mail.stop) return;
    // What the scheduler has seen finished was written by other SMs' threads or copies.
    ptx::fence_proxy_async();
    load_operands(p, s, mail);
    release(s, i);
  }
}

}  // namespace catamount::cuda
