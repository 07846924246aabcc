// Bounded waits on counters and on the last barrier, what ends them early, and what fulfils them.
#pragma once

#include "cuda/forward/kernel.h"
#include "cuda/forward/shared_storage.cuh"
#include "cuda/ptx/fence.cuh"
#include "cuda/ptx/memory.cuh"

namespace catamount::cuda {

__device__ inline HeapControl& control_of(const ForwardParams& p, int rank) {
  return *reinterpret_cast<HeapControl*>(p.peers.base[rank]);
}

__device__ inline bool aborted(const ForwardParams& p) {
  return ptx::ld_relaxed_gpu(&p.state->abort) != 0;
}

// The first failure of the rank is the one to report; its peers learn that it gave up.
__device__ inline void abort_pass(const ForwardParams& p, const ErrorRecord& record) {
  if (ptx::atom_relaxed_gpu_exch(&p.state->abort, 1) != 0) return;
  p.state->error = record;
  const std::uint64_t pass = p.state->pass;
#pragma unroll 1
  for (int r = 0; r < p.peers.ep_size; ++r) {
    ptx::st_release_sys(&control_of(p, r).failed[p.peers.rank], pass);
  }
}

// Polls `satisfied` until it holds; false: the pass was aborted, here after `timeout` has told why.
template <class Satisfied, class Timeout>
__device__ inline bool poll(const ForwardParams& p, const Satisfied& satisfied,
                            const Timeout& timeout) {
  if (satisfied()) return true;
  const std::uint64_t begin = ptx::globaltimer();
  while (!satisfied()) {
    if (aborted(p)) return false;
    if (ptx::globaltimer() - begin > p.timeout_ns) {
      abort_pass(p, timeout());
      return false;
    }
    ptx::nanosleep(40);
  }
  return true;
}

__device__ inline bool wait_units(const ForwardParams& p, const SharedStorage& s, Stage stage,
                                  const Wait& wait) {
  const std::uint32_t target = s.targets[static_cast<int>(wait.stage)][wait.shared];
#pragma unroll 1
  for (std::int32_t unit = wait.begin; unit < wait.end; ++unit) {
    const std::int32_t index = s.schedule.counter(wait.stage, unit);
    const std::uint32_t* counter = p.counters + index;
    const auto satisfied = [&] { return ptx::ld_acquire_gpu(counter) >= target; };
    const auto timeout = [&] {
      return ErrorRecord{DeviceFault::counter_timeout, stage, wait.stage, p.peers.rank, -1, unit,
                         index, target, ptx::ld_acquire_gpu(counter)};
    };
    if (!poll(p, satisfied, timeout)) return false;
  }
  return true;
}

// The last barrier: rank `peer` has arrived.
__device__ inline bool wait_peer(const ForwardParams& p, Stage stage, int peer) {
  const std::uint64_t pass = p.state->pass;
  const HeapControl& own = control_of(p, p.peers.rank);
  const std::uint64_t* word = &own.arrived[static_cast<int>(Barrier::last)][peer];
  bool gave_up = false;
  const auto satisfied = [&] {
    gave_up = ptx::ld_acquire_sys(&own.failed[peer]) == pass;
    return gave_up || ptx::ld_acquire_sys(word) >= pass;
  };
  const auto record = [&](DeviceFault fault) {
    return ErrorRecord{fault, stage, stage, p.peers.rank, peer, static_cast<int>(Barrier::last),
                       -1, pass, ptx::ld_acquire_sys(word)};
  };
  const bool arrived = poll(p, satisfied, [&] { return record(DeviceFault::barrier_timeout); });
  if (gave_up) abort_pass(p, record(DeviceFault::peer_failed));
  return arrived && !gave_up;
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
      for (int r = lane; r < p.peers.ep_size; r += 32) ok = ok && wait_peer(p, task.stage, r);
    } else if (lane == i) {
      ok = wait_units(p, s, task.stage, waits[i]);
    }
  }
  return __all_sync(0xFFFFFFFF, ok);
}

// Everything of this rank that peers or the sums wait for is done, and so is what backward needs.
__device__ inline void arrive_last(const ForwardParams& p) {
  if (p.saved_header != nullptr) *p.saved_header = {kSavedMagic, p.saved_fingerprint};
  ptx::fence_acq_rel_sys();
  const std::uint64_t pass = p.state->pass;
#pragma unroll 1
  for (int r = 0; r < p.peers.ep_size; ++r) {
    ptx::st_release_sys(&control_of(p, r).arrived[static_cast<int>(Barrier::last)][p.peers.rank],
                        pass);
  }
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
