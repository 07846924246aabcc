// Bounded waits on counters and on the last barrier, what ends them early, and what fulfils them.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/forward/kernel.h"
#include "cuda/forward/shared_storage.cuh"

namespace catamount::cuda {

__device__ inline bool aborted(const ForwardParams& p) { return aborted(p.state); }

__device__ inline bool wait_units(const ForwardParams& p, const SharedStorage& s, Stage stage,
                                  const Wait& wait) {
  const std::uint32_t target = s.targets[static_cast<int>(wait.stage)][wait.shared];
#pragma unroll 1
  for (std::int32_t unit = wait.begin; unit < wait.end; ++unit) {
    const std::int32_t index = s.schedule.counter(wait.stage, unit);
    const std::uint32_t* counter = p.counters + index;
    const auto satisfied = [&] { return ptx::ld_acquire_gpu(counter) >= target; };
    const auto timeout = [&] {
      return ErrorRecord{
          DeviceFault::counter_timeout, stage, wait.stage, p.peers.rank, -1, unit, index, target,
          ptx::ld_acquire_gpu(counter)};
    };
    if (!poll(p.state, p.peers, p.timeout_ns, satisfied, timeout)) return false;
  }
  return true;
}

// By a whole warp: lane i takes wait i, or peers i, i + 32.
__device__ inline bool wait_all(const ForwardParams& p, const SharedStorage& s, const Task& task,
                                int lane) {
  Wait waits[kMaxWaits];
  const int n = s.schedule.waits(task, waits);
  bool ok = true;
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    if (waits[i].barrier) {
#pragma unroll 1
      for (int r = lane; r < p.peers.ep_size; r += 32) {
        ok = ok && wait_peer(p.state, p.peers, p.timeout_ns, task.stage, Barrier::last, r);
      }
    } else if (lane == i) {
      ok = wait_units(p, s, task.stage, waits[i]);
    }
  }
  return __all_sync(0xFFFFFFFF, ok);
}

// Everything of this rank that peers or the sums wait for is done, and so is what backward needs.
__device__ inline void arrive_last(const ForwardParams& p) {
  if (aborted(p)) return;
  if (p.saved_header != nullptr) *p.saved_header = {kSavedMagic, p.saved_fingerprint};
  ptx::fence_acq_rel_sys();
  arrive(p.state, p.peers, Barrier::last);
}

// By the lane whose bulk stores were the task's result, once they are complete.
__device__ inline void complete_task(const ForwardParams& p, const Schedule& schedule,
                                     std::int32_t counter, bool finishes) {
  ptx::fence_proxy_async();
  ptx::red_release_gpu_add(p.counters + counter, 1);
  if (!finishes) return;
  std::uint32_t* finished = p.counters + schedule.config.finished_counter();
  if (ptx::atom_acq_rel_gpu_add(finished, 1) + 1 == schedule.finished_target) arrive_last(p);
}

}  // namespace catamount::cuda
