// Publishing the rank's inputs, the first barrier, and counting: rows of each of the rank's experts
// in one chunk of the slots of all ranks.
#pragma once

#include "cuda/routing/shared.cuh"

namespace catamount::cuda::routing {

// The first of a rank's tasks: a fresh state, and the rank has arrived at the first barrier.
__device__ inline void publish(const RoutingParams& p) {
  if (thread_index() != 0) return;
  HeapControl& own = control_of(p.peers, p.peers.rank);
  const std::uint64_t pass = own.arrived[static_cast<int>(Barrier::first)][p.peers.rank] + 1;
  own.inputs = p.inputs;
  p.state->pass = pass;
  p.state->abort = 0;
  p.state->host_error = p.host_error;
  for (unsigned long long& cursor : p.state->cursor) cursor = 0;
  if (p.saved_header != nullptr) *p.saved_header = {0, 0};
  arrive(p.state, p.peers, Barrier::first);
  ptx::st_release_sys(&p.routing->started, pass);
}

// Waits until the rank has started and all ranks have arrived. By a whole CTA.
__device__ inline bool wait_first(const RoutingParams& p, Shared& s) {
  if (warp_index() == 0) {
    while (ptx::ld_acquire_sys(&p.routing->started) == 0) {
    }
    bool ok = true;
    for (int r = lane_index(); r < p.peers.ep_size; r += 32) {
      ok = ok && wait_peer(p.state, p.peers, p.timeout_ns, Stage::routing, Barrier::first, r);
    }
    ok = __all_sync(kAllLanes, ok) && !aborted(p.state);
    if (lane_index() == 0) s.ok = ok;
  }
  __syncthreads();
  return s.ok;
}

// The chunk's part of the counters of all stages.
__device__ inline void zero_counters(const RoutingParams& p, int chunk) {
  const std::int64_t begin = p.num_counters * chunk / p.chunks;
  const std::int64_t end = p.num_counters * (chunk + 1) / p.chunks;
  for (std::int64_t i = begin + thread_index(); i < end; i += kThreads) p.counters[i] = 0;
}

__device__ inline void check_id(const RoutingParams& p, const Slot& slot) {
  if (slot.expert >= -1 && slot.expert < p.num_experts) return;
  const auto key = static_cast<unsigned long long>(slot.rank) << 48 |
                   static_cast<unsigned long long>(slot.index);
  atomicMax(&p.routing->bad_slot_inverted, ~key);
}

__device__ inline void count_window(const RoutingParams& p, Shared& s, const Chunk& chunk,
                                    int first_expert, std::uint32_t* counts) {
  const RoutingShape shape = shape_of(p);
  std::uint32_t* rows = s.warp_rows[0];
  for (int i = thread_index(); i < kWindow; i += kThreads) rows[i] = 0;
  __syncthreads();
  for (std::uint32_t i = thread_index(); i < chunk.slots; i += kThreads) {
    const Slot slot = slot_of(s, chunk, i);
    if (!slot.exists) continue;
    if (first_expert == 0) check_id(p, slot);
    const std::int64_t e = shape.local_expert(slot.expert) - first_expert;
    if (e >= 0 && e < kWindow) atomicAdd(&rows[e], 1U);
  }
  __syncthreads();
  const int num_experts = p.schedule.num_local_experts - first_expert;
  for (int i = thread_index(); i < min(num_experts, kWindow); i += kThreads) {
    counts[first_expert + i] = rows[i];
  }
  __syncthreads();
}

// Elements between the counts of two chunks: rows of 16 bytes.
__device__ inline std::int32_t counts_stride(const RoutingParams& p) {
  return static_cast<std::int32_t>(round_up(p.schedule.num_local_experts, 4));
}

__device__ inline void count_chunk(const RoutingParams& p, Shared& s, int chunk_idx) {
  if (wait_first(p, s)) {
    zero_counters(p, chunk_idx);
    load_slots(p, s);
    const Chunk chunk = chunk_of(p, s, chunk_idx);
    const int num_experts = p.schedule.num_local_experts;
    std::uint32_t* counts = p.chunk_counts + chunk_idx * counts_stride(p);
    for (int e = 0; e < num_experts; e += kWindow) count_window(p, s, chunk, e, counts);
  }
  __syncthreads();
  if (thread_index() == 0) ptx::red_release_gpu_add(&p.routing->chunks_counted, 1);
}

// Waits until every chunk has been counted; false: the pass has failed. By a whole CTA.
__device__ inline bool wait_counted(const RoutingParams& p, Shared& s) {
  if (thread_index() == 0) {
    const auto chunks = static_cast<std::uint32_t>(p.chunks);
    while (ptx::ld_acquire_gpu(&p.routing->chunks_counted) < chunks) {
    }
    s.ok = !aborted(p.state) && p.routing->bad_slot_inverted == 0;
  }
  __syncthreads();
  return s.ok;
}

__device__ inline void add(uint4* sum, const uint4& n) {
  sum->x += n.x;
  sum->y += n.y;
  sum->z += n.z;
  sum->w += n.w;
}
__device__ inline void add_to(std::uint32_t* sums, const uint4& n) {
  atomicAdd(sums, n.x);
  atomicAdd(sums + 1, n.y);
  atomicAdd(sums + 2, n.z);
  atomicAdd(sums + 3, n.w);
}

// Adds up the counts of `num` experts from `first` on: totals, and rows in chunks before `chunk`.
__device__ inline void sum_counts(const RoutingParams& p, Shared& s, int first, int num,
                                  int chunk) {
  if (thread_index() < kWindow) {
    s.total[thread_index()] = 0;
    s.before[thread_index()] = 0;
  }
  __syncthreads();
  // Groups of threads with one thread for four experts; each group takes every so many chunks.
  const int quads = (num + 3) / 4;
  const int group_threads = quads > 32 ? quads : 32;
  const int groups = kThreads / group_threads;
  const int group = thread_index() / group_threads;
  const int i = thread_index() % group_threads;
  if (group < groups && i < quads) {
    const auto* counts = reinterpret_cast<const uint4*>(p.chunk_counts + first) + i;
    const std::int32_t stride = counts_stride(p) / 4;
    uint4 total{};
    uint4 before{};
#pragma unroll 8
    for (int c = group; c < p.chunks; c += groups) {
      const uint4 n = __ldcg(counts + c * stride);
      add(&total, n);
      if (c < chunk) add(&before, n);
    }
    add_to(s.total + 4 * i, total);
    add_to(s.before + 4 * i, before);
  }
  __syncthreads();
}

// Row blocks of `num` experts behind `*blocks` others: their first rows; advances `*blocks`.
__device__ inline void place_experts(Shared& s, int num, std::int64_t* blocks) {
  const int i = thread_index();
  const std::int64_t mine =
      i < num ? ceil_div(static_cast<std::int64_t>(s.total[i]), kBlockRows) : 0;
  std::int64_t all = 0;
  const std::int64_t first = *blocks + exclusive_sum(s, mine, &all);
  if (i < num) s.first_row[i] = static_cast<std::int32_t>(first * kBlockRows);
  *blocks += all;
  __syncthreads();
}

}  // namespace catamount::cuda::routing
