// Placing: where the rows of one chunk go, in exactly core/routing.h's order. Each warp has a
// consecutive part of the chunk; equal experts of a warp are ranked by matching.
#pragma once

#include "cuda/routing/count.cuh"

namespace catamount::cuda::routing {

struct WarpPart {
  std::uint32_t begin;
  std::uint32_t end;
};
__device__ inline WarpPart warp_part(const Chunk& chunk) {
  const std::uint32_t size = (chunk.slots + kThreads - 1) / kThreads * 32;
  const std::uint32_t begin = min(size * warp_index(), chunk.slots);
  return {begin, min(begin + size, chunk.slots)};
}

// Index of the slot's expert in the window, or -1.
__device__ inline int window_expert(const RoutingShape& shape, const Slot& slot, int first_expert) {
  if (!slot.exists) return -1;
  const std::int64_t local = shape.local_expert(slot.expert);
  const std::int64_t e = local - first_expert;
  return local >= 0 && e >= 0 && e < kWindow ? static_cast<int>(e) : -1;
}

// Calls visit(slot, e, row) for every slot of the warp's part: e and row are -1 for slots of no
// expert of the window. Rows of expert e are counted from next[e] on.
template <class Visit>
__device__ inline void rank_slots(const RoutingParams& p, const Shared& s, const Chunk& chunk,
                                  int first_expert, std::uint32_t* next, const Visit& visit) {
  const RoutingShape shape = shape_of(p);
  const WarpPart part = warp_part(chunk);
  for (std::uint32_t i = part.begin; i < part.end; i += 32) {
    const Slot slot = slot_of(s, chunk, i + lane_index());
    const int e = window_expert(shape, slot, first_expert);
    const unsigned same = __match_any_sync(kAllLanes, e);
    const int rank = __popc(same & ((1U << lane_index()) - 1));
    const std::uint32_t begin = e >= 0 ? next[e] : 0;
    __syncwarp();
    if (e >= 0 && rank == 0) next[e] = begin + __popc(same);
    __syncwarp();
    visit(slot, e, e >= 0 ? static_cast<std::int32_t>(begin) + rank : -1);
  }
}

// Own slots that are no row here.
__device__ inline void mark_own_slot(const RoutingParams& p, const RoutingShape& shape,
                                     const Slot& slot) {
  if (!slot.exists || slot.rank != p.peers.rank || shape.local_expert(slot.expert) >= 0) return;
  p.tables.slot_row[slot.index] = slot.expert < 0 ? kMaskedSlot : kRemoteSlot;
}

// Padding behind the rows of every chunks-th expert, each by a warp.
__device__ inline void pad_experts(const RoutingParams& p, const Shared& s, int first_expert,
                                   int num, int chunk) {
  const int skip = (chunk - first_expert % p.chunks + p.chunks) % p.chunks;
  for (int i = skip + warp_index() * p.chunks; i < num; i += kWarps * p.chunks) {
    const std::int64_t rows = s.total[i];
    const std::int64_t end = s.first_row[i] + round_up(rows, kBlockRows);
    for (std::int64_t row = s.first_row[i] + rows + lane_index(); row < end; row += 32) {
      p.tables.row_source[row] = {0, -1, 0};
      p.tables.row_weight[row] = 0.0F;
    }
  }
}

__device__ inline void place_window(const RoutingParams& p, Shared& s, const Chunk& chunk,
                                    int first_expert, int num) {
  std::uint32_t* next = s.warp_rows[warp_index()];
  for (int i = lane_index(); i < num; i += 32) next[i] = 0;
  __syncwarp();
  rank_slots(p, s, chunk, first_expert, next, [](const Slot&, int, std::int32_t) {});
  __syncthreads();
  if (const int i = thread_index(); i < num) {
    std::uint32_t row = static_cast<std::uint32_t>(s.first_row[i]) + s.before[i];
    for (auto& rows : s.warp_rows) {
      const std::uint32_t n = rows[i];
      rows[i] = row;
      row += n;
    }
  }
  __syncthreads();
  const RoutingShape shape = shape_of(p);
  rank_slots(p, s, chunk, first_expert, next, [&](const Slot& slot, int e, std::int32_t row) {
    if (first_expert == 0) mark_own_slot(p, shape, slot);
    if (e < 0) return;
    p.tables.row_source[row] = {slot.token, static_cast<std::int16_t>(slot.rank),
                                static_cast<std::int16_t>(slot.k)};
    p.tables.row_weight[row] = s.slots[slot.rank].topk_weights[slot.index];
    if (slot.rank == p.peers.rank) p.tables.slot_row[slot.index] = row;
  });
  __syncthreads();
}

__device__ inline void place_chunk(const RoutingParams& p, Shared& s, int chunk_idx) {
  if (!wait_counted(p, s)) return;
  load_slots(p, s);
  const Chunk chunk = chunk_of(p, s, chunk_idx);
  std::int64_t blocks = 0;
  for (int e = 0; e < p.schedule.num_local_experts; e += kWindow) {
    const int num = min(p.schedule.num_local_experts - e, kWindow);
    sum_counts(p, s, e, num, chunk_idx);
    place_experts(s, num, &blocks);
    pad_experts(p, s, e, num, chunk_idx);
    place_window(p, s, chunk, e, num);
  }
}

}  // namespace catamount::cuda::routing
