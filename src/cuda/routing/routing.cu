// The routing kernel. Tasks of all ranks of the launch, claimed in order, wait only for earlier
// ones: any number of resident CTAs finishes them.
//
//   publish    a rank     its inputs; it arrives at the first barrier
//   count      a chunk    waits for the first barrier of all ranks
//   schedule   a rank     waits until all chunks of the rank are counted
//   place      a chunk    likewise
//   leave      a rank     after a bad id: waits for the last barrier
#include "cuda/routing/kernel.h"

#include <algorithm>

#include "cuda/routing/place.cuh"
#include "cuda/routing/schedule.cuh"

namespace catamount::cuda {
namespace routing {
namespace {

template <int kRanks>
struct Launch {
  RoutingParams rank[kRanks];
  int num_ranks;
};

__device__ void leave(const RoutingParams& p, Shared& s) {
  if (wait_counted(p, s) || warp_index() != 0 || p.routing->bad_slot_inverted == 0) return;
  while (!aborted(p.state)) {  // the schedule's task has been claimed, and is about to report
  }
  // A rank that does not come has reported, and was reported, in its own way.
  const std::uint64_t begin = ptx::globaltimer();
  for (int r = lane_index(); r < p.peers.ep_size; r += 32) {
    const HeapControl& own = control_of(p.peers, p.peers.rank);
    while (ptx::ld_acquire_sys(&own.arrived[static_cast<int>(Barrier::last)][r]) < p.state->pass &&
           ptx::globaltimer() - begin < p.timeout_ns) {
      ptx::nanosleep(40);
    }
  }
}

__device__ std::uint32_t claim(RoutingState* state, Shared& s) {
  __syncthreads();
  if (thread_index() == 0) s.task = atomicAdd(&state->ticket, 1U);
  __syncthreads();
  return s.task;
}

template <int kRanks>
__device__ void run_task(const Launch<kRanks>& launch, Shared& s, std::uint32_t task) {
  const auto num_ranks = static_cast<std::uint32_t>(launch.num_ranks);
  const auto chunks = static_cast<std::uint32_t>(launch.rank[0].chunks);
  if (task < num_ranks) return publish(launch.rank[task]);
  task -= num_ranks;
  if (task < num_ranks * chunks) {
    return count_chunk(launch.rank[task / chunks], s, static_cast<int>(task % chunks));
  }
  task -= num_ranks * chunks;
  if (task < num_ranks) return build_schedule(launch.rank[task], s);
  task -= num_ranks;
  if (task < num_ranks * chunks) {
    return place_chunk(launch.rank[task / chunks], s, static_cast<int>(task % chunks));
  }
  leave(launch.rank[task - num_ranks * chunks], s);
}

// The last CTA leaves everything as it must be found.
template <int kRanks>
__device__ void reset(const Launch<kRanks>& launch) {
  __syncthreads();
  if (thread_index() != 0) return;
  __threadfence();
  RoutingState* first = launch.rank[0].routing;
  if (atomicAdd(&first->left, 1U) + 1 < gridDim.x) return;
  for (int r = 0; r < launch.num_ranks; ++r) *launch.rank[r].routing = {};
}

template <int kRanks>
__global__ void __launch_bounds__(kThreads)
    routing_kernel(const __grid_constant__ Launch<kRanks> launch) {
  __shared__ Shared s;
  const auto num_tasks =
      static_cast<std::uint32_t>(launch.num_ranks * (3 + 2 * launch.rank[0].chunks));
  for (;;) {
    const std::uint32_t task = claim(launch.rank[0].routing, s);
    if (task >= num_tasks) break;
    run_task(launch, s, task);
  }
  reset(launch);
}

template <int kRanks>
cudaError_t launch(const RoutingParams* ranks, int num_ranks, int max_ctas, cudaStream_t stream) {
  Launch<kRanks> arguments{};
  std::copy_n(ranks, num_ranks, arguments.rank);
  arguments.num_ranks = num_ranks;
  const int useful = num_ranks * (1 + ranks[0].chunks);
  const int ctas = std::max(1, std::min(max_ctas, useful));
  routing_kernel<kRanks><<<static_cast<unsigned>(ctas), kThreads, 0, stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace
}  // namespace routing

int routing_chunks(std::int64_t slots, int num_ranks) {
  constexpr std::int64_t kSlotsPerChunk = 512;
  return static_cast<int>(
      std::clamp<std::int64_t>(ceil_div(slots, kSlotsPerChunk), 1, kMaxRoutingChunks / num_ranks));
}

cudaError_t load_routing() {
  cudaFuncAttributes attributes{};
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, routing::routing_kernel<1>);
      error != cudaSuccess) {
    return error;
  }
  return cudaFuncGetAttributes(&attributes, routing::routing_kernel<kMaxRoutingRanks>);
}

cudaError_t launch_routing(const RoutingParams* ranks, int num_ranks, int max_ctas,
                           cudaStream_t stream) {
  if (num_ranks < 1 || num_ranks > kMaxRoutingRanks) return cudaErrorInvalidValue;
  if (num_ranks == 1) return routing::launch<1>(ranks, 1, max_ctas, stream);
  return routing::launch<kMaxRoutingRanks>(ranks, num_ranks, max_ctas, stream);
}

}  // namespace catamount::cuda
