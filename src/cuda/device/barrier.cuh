// Giving up a pass, bounded waits, and the cross-rank barriers: what the routing kernel and the
// fused kernels share.
#pragma once

#include "catamount/peer_memory.h"
#include "core/layout.h"
#include "cuda/device/error_record.h"
#include "cuda/device/pass_state.h"
#include "cuda/ptx/fence.cuh"
#include "cuda/ptx/memory.cuh"

namespace catamount::cuda {

__device__ inline HeapControl& control_of(const PeerTable& peers, int rank) {
  return *reinterpret_cast<HeapControl*>(peers.base[rank]);
}

__device__ inline bool aborted(const PassState* state) {
  return ptx::ld_relaxed_gpu(&state->abort) != 0;
}

// Into host memory; `fault` last, so that the host never reads half a record. A record that the
// host has not taken yet stays: it is the first.
__device__ inline void report(ErrorRecord* host, const ErrorRecord& record) {
  auto* fault = reinterpret_cast<volatile std::uint32_t*>(&host->fault);
  if (*fault != static_cast<std::uint32_t>(DeviceFault::none)) return;
  ErrorRecord rest = record;
  rest.fault = DeviceFault::none;
  *host = rest;
  __threadfence_system();
  *fault = static_cast<std::uint32_t>(record.fault);
}

// The first failure of the rank is the one to report; its peers learn that it gave up.
__device__ inline void abort_pass(PassState* state, const PeerTable& peers,
                                  const ErrorRecord& record) {
  if (ptx::atom_relaxed_gpu_exch(&state->abort, 1) != 0) return;
  report(state->host_error, record);
#pragma unroll 1
  for (int r = 0; r < peers.ep_size; ++r) {
    ptx::st_release_sys(&control_of(peers, r).failed[peers.rank], state->pass);
  }
}

// Polls `satisfied` until it holds; false: the pass was aborted, here after `timeout` has told why.
template <class Satisfied, class Timeout>
__device__ inline bool poll(PassState* state, const PeerTable& peers, std::uint64_t timeout_ns,
                            const Satisfied& satisfied, const Timeout& timeout) {
  if (satisfied()) return true;
  const std::uint64_t begin = ptx::globaltimer();
  while (!satisfied()) {
    if (aborted(state)) return false;
    if (ptx::globaltimer() - begin > timeout_ns) {
      abort_pass(state, peers, timeout());
      return false;
    }
    ptx::nanosleep(40);
  }
  return true;
}

// Tells every rank that this one has arrived. After a fence for what other threads have written.
__device__ inline void arrive(const PassState* state, const PeerTable& peers, Barrier barrier) {
  const std::uint64_t pass = state->pass;
#pragma unroll 1
  for (int r = 0; r < peers.ep_size; ++r) {
    ptx::st_release_sys(&control_of(peers, r).arrived[static_cast<int>(barrier)][peers.rank], pass);
  }
}

// Waits until rank `peer` has arrived at a barrier.
__device__ inline bool wait_peer(PassState* state, const PeerTable& peers, std::uint64_t timeout_ns,
                                 Stage stage, Barrier barrier, int peer) {
  const std::uint64_t pass = state->pass;
  const HeapControl& own = control_of(peers, peers.rank);
  const std::uint64_t* word = &own.arrived[static_cast<int>(barrier)][peer];
  bool gave_up = false;
  const auto satisfied = [&] {
    gave_up = ptx::ld_acquire_sys(&own.failed[peer]) == pass;
    return gave_up || ptx::ld_acquire_sys(word) >= pass;
  };
  const auto record = [&](DeviceFault fault) {
    return ErrorRecord{fault,      stage, stage,
                       peers.rank, peer,  static_cast<int>(barrier),
                       -1,         pass,  ptx::ld_acquire_sys(word)};
  };
  const bool arrived = poll(state, peers, timeout_ns, satisfied,
                            [&] { return record(DeviceFault::barrier_timeout); });
  if (gave_up) abort_pass(state, peers, record(DeviceFault::peer_failed));
  return arrived && !gave_up;
}

}  // namespace catamount::cuda
