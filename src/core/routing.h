// Routing: which rows each expert of this rank computes, where each comes from, in which order.
//
// Every rank reads the top-k ids of all ranks, so nobody has to be told anything. A routed slot
// (token t of rank s, slot k) becomes a row of the rank that owns its expert. Rows of an expert are
// ordered by (t, s, k): a stable order, and neighbouring rows come from different ranks, so that
// pulls spread over all links. Each expert's rows start at a whole row block:
//
//   row block:   0     1     2     3     4          E_local experts, padded to kBlockRows
//              |  expert 0 ...|pad| expert 1 |pad|  padding rows have source rank -1
#pragma once

#include <cstdint>

#include "core/macros.h"
#include "core/tile.h"

namespace catamount {

struct RowSource {
  std::int32_t token;
  std::int16_t rank;  // -1: padding
  std::int16_t slot;
};

// Parts of all ranks' tokens that a GPU counts and places at the same time; at most.
inline constexpr int kMaxRoutingChunks = 128;

// Values of slot_row that are no row.
inline constexpr std::int32_t kMaskedSlot = -1;
inline constexpr std::int32_t kRemoteSlot = -2;  // another rank computes it

// Tables of one rank's routing; all in caller's memory (layout.h has the sizes).
struct RoutingTables {
  std::int64_t* expert_rows;  // [E_local] rows of each expert
  std::int32_t* block_begin;  // [E_local + 1] first row block of each expert
  RowSource* row_source;      // [max_blocks * kBlockRows]
  float* row_weight;          // [max_blocks * kBlockRows] router weight of each row; 0 in padding
  std::int32_t* slot_row;  // [T, topk] row of each of this rank's own slots, where it computes it
};

// One rank's published ids. Weights are row-major [tokens, topk] like the ids.
struct RankSlots {
  std::int64_t tokens = 0;
  const void* topk_idx = nullptr;
  bool idx_is_64bit = false;
  const float* topk_weights = nullptr;

  CATAMOUNT_HD std::int64_t expert(std::int64_t index) const {
    return idx_is_64bit ? static_cast<const std::int64_t*>(topk_idx)[index]
                        : static_cast<const std::int32_t*>(topk_idx)[index];
  }
};

struct RoutingShape {
  int rank;
  int ep_size;
  std::int64_t num_experts;
  std::int64_t topk;

  CATAMOUNT_HD std::int64_t num_local_experts() const { return num_experts / ep_size; }
  // Index among this rank's experts, or -1: masked or another rank's.
  CATAMOUNT_HD std::int64_t local_expert(std::int64_t expert) const {
    const std::int64_t local = expert - rank * num_local_experts();
    return expert >= 0 && local >= 0 && local < num_local_experts() ? local : -1;
  }
};

// The first id outside [-1, num_experts), in (rank, token, slot) order.
struct RoutingFault {
  bool found = false;
  int rank = 0;
  std::int64_t token = 0;
  std::int64_t slot = 0;
  std::int64_t expert = 0;
};

CATAMOUNT_HD inline RoutingFault find_bad_id(const RoutingShape& shape, const RankSlots* ranks) {
  for (int s = 0; s < shape.ep_size; ++s) {
    for (std::int64_t i = 0; i < ranks[s].tokens * shape.topk; ++i) {
      const std::int64_t expert = ranks[s].expert(i);
      if (expert < -1 || expert >= shape.num_experts) {
        return {true, s, i / shape.topk, i % shape.topk, expert};
      }
    }
  }
  return {};
}

// Calls visit(expert_local, rank s, token t, slot k) for this rank's rows in row order (t, s, k).
template <class Visit>
CATAMOUNT_HD void for_each_row(const RoutingShape& shape, const RankSlots* ranks, Visit&& visit) {
  std::int64_t max_tokens = 0;
  for (int s = 0; s < shape.ep_size; ++s) {
    if (ranks[s].tokens > max_tokens) max_tokens = ranks[s].tokens;
  }
  for (std::int64_t t = 0; t < max_tokens; ++t) {
    for (int s = 0; s < shape.ep_size; ++s) {
      if (t >= ranks[s].tokens) continue;
      for (std::int64_t k = 0; k < shape.topk; ++k) {
        const std::int64_t e = shape.local_expert(ranks[s].expert(t * shape.topk + k));
        if (e >= 0) visit(e, s, t, k);
      }
    }
  }
}

// Fills every table. Ids must have passed find_bad_id. Returns the number of row blocks.
// `next` is scratch, [E_local].
CATAMOUNT_HD inline std::int64_t build_routing(const RoutingShape& shape, const RankSlots* ranks,
                                               const RoutingTables& out, std::int64_t* next) {
  const std::int64_t num_experts = shape.num_local_experts();
  for (std::int64_t e = 0; e < num_experts; ++e) out.expert_rows[e] = 0;
  for_each_row(shape, ranks,
               [&](std::int64_t e, int, std::int64_t, std::int64_t) { ++out.expert_rows[e]; });
  out.block_begin[0] = 0;
  for (std::int64_t e = 0; e < num_experts; ++e) {
    const auto blocks = static_cast<std::int32_t>(ceil_div(out.expert_rows[e], kBlockRows));
    out.block_begin[e + 1] = out.block_begin[e] + blocks;
    next[e] = static_cast<std::int64_t>(out.block_begin[e]) * kBlockRows;
    for (std::int64_t row = next[e] + out.expert_rows[e];
         row < static_cast<std::int64_t>(out.block_begin[e + 1]) * kBlockRows; ++row) {
      out.row_source[row] = {0, -1, 0};
      out.row_weight[row] = 0.0F;
    }
  }
  const RankSlots& own = ranks[shape.rank];
  for (std::int64_t i = 0; i < own.tokens * shape.topk; ++i) {
    out.slot_row[i] = own.expert(i) < 0 ? kMaskedSlot : kRemoteSlot;
  }
  for_each_row(shape, ranks, [&](std::int64_t e, int s, std::int64_t t, std::int64_t k) {
    const std::int64_t row = next[e]++;
    out.row_source[row] = {static_cast<std::int32_t>(t), static_cast<std::int16_t>(s),
                           static_cast<std::int16_t>(k)};
    out.row_weight[row] = ranks[s].topk_weights[t * shape.topk + k];
    if (s == shape.rank) out.slot_row[t * shape.topk + k] = static_cast<std::int32_t>(row);
  });
  return out.block_begin[num_experts];
}

}  // namespace catamount
