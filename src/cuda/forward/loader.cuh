// The loader: one lane that keeps the operand ring full, task after task. The rings of a cluster's
// CTAs go in step: a stage is loaded when both CTAs' consumers have left it, and the CTAs of a pair
// load half of B each, for both.
#pragma once

#include "cuda/device/mailbox.cuh"
#include "cuda/forward/kernel.h"
#include "cuda/ptx/fence.cuh"
#include "cuda/ptx/tma.cuh"

namespace catamount::cuda {

// One half of the B tile: W_gate's rows or W_up's, or 96 rows of W_down.
struct HalfB {
  const CUtensorMap* map;
  std::int32_t row;
};

__device__ inline void load_operands(const ForwardParams& p, SharedStorage& s, const Mail& mail,
                                     std::uint32_t cta) {
  const ExpertMaps& maps = mail.shared ? p.shared : p.routed;
  const bool gate_up = mail.stage == Stage::gate_up;
  const CUtensorMap* map_a = !gate_up ? &maps.h_load : mail.kept_x ? &maps.x_kept : &maps.x;
  const std::int32_t plane = mail.shared ? 0 : mail.expert;
  const std::int32_t row = mail.load_row;
  const std::int32_t column = mail.n * (gate_up ? kGateColumns : kTileColumns);
  const HalfB half0{gate_up ? &maps.gate : &maps.down, column};
  const HalfB half1{gate_up ? &maps.up : &maps.down, gate_up ? column : column + kGateColumns};
  const HalfB mine = cta == 0 ? half0 : half1;
  const bool paired = mail.paired;
  RingPosition<kStages> at(mail.ring);
  for (std::int32_t k = 0; k < mail.k_blocks; ++k, at.advance()) {
    std::uint64_t* full = &s.full[at.slot];
    const std::int32_t x = k * kBlockK;
    std::byte* b = s.b[at.slot];
    wait_parity(&s.empty[at.slot], at.phase ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, kBytesA + kBytesB);
    ptx::cp_async_bulk_tensor_load_2d(s.a[at.slot], map_a, full, x, row);
    if (paired) {
      ptx::cp_async_bulk_tensor_load_multicast_3d(b + cta * (kBytesB / 2), mine.map, full, x,
                                                  mine.row, plane, (1 << kCluster) - 1);
    } else {
      ptx::cp_async_bulk_tensor_load_3d(b, half0.map, full, x, half0.row, plane);
      ptx::cp_async_bulk_tensor_load_3d(b + kBytesB / 2, half1.map, full, x, half1.row, plane);
    }
  }
}

// Passes stages on unfilled.
__device__ inline void skip_operands(SharedStorage& s, const Mail& mail) {
  RingPosition<kStages> at(mail.ring);
  for (std::int32_t k = 0; k < mail.k_blocks; ++k, at.advance()) {
    wait_parity(&s.empty[at.slot], at.phase ^ 1);
    ptx::mbarrier_arrive(&s.full[at.slot]);
  }
}

__device__ inline void run_loader(const ForwardParams& p, SharedStorage& s, std::uint32_t cta) {
  for (std::uint32_t i = 0;; ++i) {
    const Mail& mail = receive(s, i);
    if (mail.stop) return;
    // What the scheduler has seen finished was written by other SMs' threads or copies.
    ptx::fence_proxy_async();
    if (mail.idle) {
      skip_operands(s, mail);
    } else {
      load_operands(p, s, mail, cta);
    }
    release(s, i);
  }
}

}  // namespace catamount::cuda
