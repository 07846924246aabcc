// What the tasks of the routing kernel share: sizes, shared memory, sums over a CTA, the ids.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/routing/kernel.h"

namespace catamount::cuda::routing {

inline constexpr int kThreads = 512;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kWindow = 512;  // experts whose counts fit into shared memory at a time
inline constexpr unsigned kAllLanes = 0xFFFFFFFF;
static_assert(kWindow <= kThreads);

inline constexpr int kMaxSums = 4;  // values that a scan adds up at a time

struct Shared {
  std::uint32_t task;
  bool ok;
  RankSlots slots[kMaxRanks];
  std::int64_t max_tokens;
  std::int64_t warp_sums[kWarps][kMaxSums];
  // Of the experts of the window: rows in all, rows in chunks before this one, first row.
  std::uint32_t total[kWindow];
  std::uint32_t before[kWindow];
  std::int32_t first_row[kWindow];
  // Rows of each warp's part of the chunk, then the next row of each; counting uses the first only.
  std::uint32_t warp_rows[kWarps][kWindow];
  Schedule schedule;
};

__device__ inline int thread_index() { return static_cast<int>(threadIdx.x); }
__device__ inline int warp_index() { return thread_index() / 32; }
__device__ inline int lane_index() { return thread_index() % 32; }

// Replaces each value by the sum of the values of the threads before this one; `totals` over all.
// By a whole CTA.
template <int kValues>
__device__ inline void exclusive_sums(Shared& s, std::int64_t (&values)[kValues],
                                      std::int64_t (&totals)[kValues]) {
  static_assert(kValues <= kMaxSums);
#pragma unroll
  for (int v = 0; v < kValues; ++v) {
    std::int64_t sum = values[v];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const std::int64_t other = __shfl_up_sync(kAllLanes, sum, d);
      if (lane_index() >= d) sum += other;
    }
    if (lane_index() == 31) s.warp_sums[warp_index()][v] = sum;
    values[v] = sum - values[v];
    totals[v] = 0;
  }
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      const std::int64_t n = s.warp_sums[w][v];
      values[v] += w < warp_index() ? n : 0;
      totals[v] += n;
    }
  }
  __syncthreads();
}

__device__ inline std::int64_t exclusive_sum(Shared& s, std::int64_t value, std::int64_t* total) {
  std::int64_t values[1] = {value};
  std::int64_t totals[1];
  exclusive_sums(s, values, totals);
  *total = totals[0];
  return values[0];
}

// A part of the slots of all ranks, in row order: tokens [begin, end) of every rank.
struct Chunk {
  std::uint32_t begin;  // token
  std::uint32_t slots;  // of all ranks, also those that have fewer tokens
  std::uint32_t slots_per_token;
  std::uint32_t topk;
};

__device__ inline Chunk chunk_of(const RoutingParams& p, const Shared& s, int chunk) {
  const auto tokens = static_cast<std::uint32_t>(s.max_tokens);
  const auto per_chunk = (tokens + p.chunks - 1) / p.chunks;
  const std::uint32_t begin = min(per_chunk * chunk, tokens);
  const std::uint32_t end = min(begin + per_chunk, tokens);
  const auto topk = static_cast<std::uint32_t>(p.topk);
  const std::uint32_t per_token = topk * static_cast<std::uint32_t>(p.peers.ep_size);
  return {begin, (end - begin) * per_token, per_token, topk};
}

struct Slot {
  bool exists;  // its rank has this token
  std::int32_t rank;
  std::int32_t token;
  std::int32_t k;
  std::int64_t index;   // in its rank's topk_idx
  std::int64_t expert;  // as routed
};

__device__ inline Slot slot_of(const Shared& s, const Chunk& chunk, std::uint32_t i) {
  Slot slot{};
  if (i >= chunk.slots) return slot;
  const std::uint32_t t = i / chunk.slots_per_token;
  const std::uint32_t in_token = i - t * chunk.slots_per_token;
  const std::uint32_t rank = in_token / chunk.topk;
  slot.rank = static_cast<std::int32_t>(rank);
  slot.token = static_cast<std::int32_t>(chunk.begin + t);
  slot.k = static_cast<std::int32_t>(in_token - rank * chunk.topk);
  const RankSlots& of_rank = s.slots[rank];
  if (slot.token >= of_rank.tokens) return slot;
  slot.exists = true;
  slot.index = static_cast<std::int64_t>(slot.token) * chunk.topk + slot.k;
  slot.expert = of_rank.expert(slot.index);
  return slot;
}

__device__ inline RoutingShape shape_of(const RoutingParams& p) {
  return {p.peers.rank, p.peers.ep_size, p.num_experts, p.topk};
}

// Reads what all ranks have published, after the first barrier. By a whole CTA.
__device__ inline void load_slots(const RoutingParams& p, Shared& s) {
  const int r = thread_index();
  if (r < p.peers.ep_size) {
    const std::byte* base = p.peers.base[r];
    const PublishedInputs& in = control_of(p.peers, r).inputs;
    s.slots[r] = {in.tokens, base + in.topk_idx_offset, in.topk_idx_is_64bit != 0,
                  reinterpret_cast<const float*>(base + in.topk_weights_offset)};
  }
  __syncthreads();
  if (r == 0) {
    s.max_tokens = 0;
    for (int i = 0; i < p.peers.ep_size; ++i) {
      if (s.slots[i].tokens > s.max_tokens) s.max_tokens = s.slots[i].tokens;
    }
  }
  __syncthreads();
}

}  // namespace catamount::cuda::routing
