// Sizes that follow from a MoeConfig. Everything is known before a pass and holds for any routing.
#pragma once

#include <cstdint>

#include "catamount/moe.h"
#include "core/row_format.h"
#include "core/schedule.h"

namespace catamount {

// Rows a rank receives at the very worst: every slot of every rank.
inline std::int64_t worst_rows(const MoeConfig& config) {
  return config.ep_size * config.max_tokens * config.topk;
}

// Row blocks of `rows` rows, however they fall on the experts: each may end in a part-filled block.
inline std::int64_t blocks_of_rows(const MoeConfig& config, std::int64_t rows) {
  const std::int64_t spread = rows < config.num_local_experts() ? rows : config.num_local_experts();
  return (rows - spread) / kBlockRows + spread;
}

inline std::int64_t max_blocks(const MoeConfig& config) {
  return blocks_of_rows(config, worst_rows(config));
}

inline std::int64_t capacity_blocks(const MoeConfig& config) {
  const std::int64_t balanced = config.max_tokens * config.topk;
  const std::int64_t wanted = config.capacity_rows > 0 ? ceil_div(config.capacity_rows, kBlockRows)
                                                       : blocks_of_rows(config, 2 * balanced);
  const std::int64_t worst = max_blocks(config);
  const std::int64_t blocks = wanted < worst ? wanted : worst;
  return blocks > 0 ? blocks : 1;
}

// Row blocks of forward's ring of x rows: what keeps every SM of a GPU busy, and the next rows.
inline std::int64_t x_blocks(const MoeConfig& config) {
  constexpr std::int64_t kRing = 64;
  return capacity_blocks(config) < kRing ? capacity_blocks(config) : kRing;
}

inline std::int64_t max_shared_blocks(const MoeConfig& config) {
  return config.shared_intermediate > 0 ? ceil_div(config.max_tokens, kBlockRows) : 0;
}

// Whether finished rows can need a slot at home: they come from other ranks, or y is macrobatched.
inline bool may_send_home(const MoeConfig& config) {
  return config.ep_size > 1 || capacity_blocks(config) < max_blocks(config);
}

inline RowFormat hidden_row(const MoeConfig& config) { return {config.precision, config.hidden}; }
inline RowFormat intermediate_row(const MoeConfig& config, bool shared) {
  return {config.precision, shared ? config.shared_intermediate : config.intermediate};
}

// Worker and tile numbers of a backend: the part of a schedule that is a choice.
struct ScheduleTuning {
  TileSet tile_set;
  std::int32_t group_blocks;
  std::int32_t lag_tasks;
  std::int32_t lead_runs;
  std::int32_t rows_per_move;
  std::int32_t tokens_per_sum;
};

inline ScheduleConfig schedule_config(const MoeConfig& config, bool backward,
                                      const ScheduleTuning& tuning) {
  ScheduleConfig s;
  s.backward = backward;
  s.tile_set = tuning.tile_set;
  s.ep_size = config.ep_size;
  s.num_local_experts = static_cast<int>(config.num_local_experts());
  s.hidden = config.hidden;
  s.intermediate = config.intermediate;
  s.shared_intermediate = config.shared_intermediate;
  s.max_blocks = static_cast<std::int32_t>(max_blocks(config));
  s.max_shared_blocks = static_cast<std::int32_t>(max_shared_blocks(config));
  s.capacity_blocks = static_cast<std::int32_t>(capacity_blocks(config));
  s.x_blocks = static_cast<std::int32_t>(x_blocks(config));
  s.kept_blocks = config.keep == Keep::routing ? 0 : s.capacity_blocks;
  s.kept_x = config.keep == Keep::pre_activations_and_x;
  s.kept_shared = config.keep != Keep::routing;
  s.group_blocks = tuning.group_blocks;
  s.lag_tasks = tuning.lag_tasks;
  s.lead_runs = tuning.lead_runs;
  s.rows_per_move = tuning.rows_per_move;
  s.tokens_per_sum = tuning.tokens_per_sum;
  return s;
}

}  // namespace catamount
