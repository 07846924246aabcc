// The routing kernel, as the host sees it: the first launch of a pass. It publishes the rank's
// inputs, passes the first barrier, checks the ids of all ranks, builds the routing tables and the
// schedule, and zeroes the counters (docs/routing_kernel.md).
#pragma once

#include <cuda_runtime.h>

#include "catamount/peer_memory.h"
#include "core/layout.h"
#include "core/routing.h"
#include "core/schedule.h"
#include "cuda/device/pass_state.h"

namespace catamount::cuda {

// What the CTAs of one launch tell each other; zero between launches.
struct RoutingState {
  std::uint32_t ticket;   // next task (of the launch's first rank: of the launch)
  std::uint32_t left;     // CTAs that are done (likewise)
  std::uint64_t started;  // number of the pass, once the rank has published its inputs
  std::uint32_t chunks_counted;
  // ~(first bad slot): rank, then slot number; 0: every id is good. Inverted, so that max is first.
  unsigned long long bad_slot_inverted;
};

// One rank's routing. Everything comes from the host and is baked into a captured graph.
struct RoutingParams {
  PeerTable peers;
  PublishedInputs inputs;  // of this rank
  PassState* state;
  RoutingState* routing;
  ErrorRecord* host_error;
  SavedHeader* saved_header;  // becomes invalid; nullptr: nothing is saved
  std::uint32_t* counters;
  std::int64_t num_counters;
  std::uint32_t* chunk_counts;  // [chunks][E_local, to a multiple of 4] rows of each expert
  RoutingTables tables;
  ScheduleTables schedule_tables;
  ScheduleConfig schedule;
  std::int64_t num_experts;
  std::int64_t topk;
  std::uint64_t timeout_ns;
  int chunks;
};

// Ranks that one launch can drive: several where they share a GPU.
inline constexpr int kMaxRoutingRanks = 8;

// Chunks that suit `slots` slots of all ranks together, where `num_ranks` ranks share a launch.
int routing_chunks(std::int64_t slots, int num_ranks);

// As load_forward (forward/kernel.h).
cudaError_t load_routing();

// One launch for `num_ranks` ranks of this device, on at most `max_ctas` CTAs; `ranks` is host
// memory, copied. The number of CTAs does not matter to the result, nor how many are resident.
cudaError_t launch_routing(const RoutingParams* ranks, int num_ranks, int max_ctas,
                           cudaStream_t stream);

}  // namespace catamount::cuda
