// The mailbox: tasks of a CTA, in order, from its scheduler to everybody else. Every reader walks
// all tasks; a consumer only those of its turn.
#pragma once

#include "cuda/device/pipeline.cuh"
#include "cuda/forward/shared_storage.cuh"

namespace catamount::cuda {

// Arrivals that empty a slot: the loader, the storer and all threads of one consumer (one lane a
// warp would do, but racecheck does not see what __syncwarp orders before its arrival).
inline constexpr int kMailReaders = 2 + kWarpgroup;

__device__ inline const Mail& receive(SharedStorage& s, std::uint32_t index) {
  const RingPosition<kMailSlots> at(index);
  wait_parity(&s.mail_full[at.slot], at.phase);
  return s.mail[at.slot];
}

// By each reader, after the task's last use of its mail.
__device__ inline void release(SharedStorage& s, std::uint32_t index) {
  ptx::mbarrier_arrive(&s.mail_empty[index % kMailSlots]);
}

// By one lane.
__device__ inline void send(SharedStorage& s, std::uint32_t index, const Mail& mail) {
  const RingPosition<kMailSlots> at(index);
  wait_parity(&s.mail_empty[at.slot], at.phase ^ 1);
  s.mail[at.slot] = mail;
  ptx::mbarrier_arrive(&s.mail_full[at.slot]);
}

}  // namespace catamount::cuda
