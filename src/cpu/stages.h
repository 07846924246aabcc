// One function per stage: what a task of core/schedule.h does on the CPU. Each file bears the name
// of its stage.
#pragma once

#include "cpu/executor.h"
#include "cpu/rank_pass.h"

namespace catamount::cpu {

void build_routing_tables(RankPass& pass);  // routing, before the schedule exists

void dispatch(RankPass& pass, const Task& task, Worker& worker);
void gate_up(RankPass& pass, const Task& task, Worker& worker);
void down(RankPass& pass, const Task& task, Worker& worker);
void send_home(RankPass& pass, const Task& task, Worker& worker);
void combine(RankPass& pass, const Task& task, Worker& worker);

void combine_grad(RankPass& pass, const Task& task, Worker& worker);
void down_dgrad(RankPass& pass, const Task& task, Worker& worker);
void gate_up_dgrad(RankPass& pass, const Task& task, Worker& worker);
void down_wgrad(RankPass& pass, const Task& task, Worker& worker);
void gate_up_wgrad(RankPass& pass, const Task& task, Worker& worker);
void dispatch_grad(RankPass& pass, const Task& task, Worker& worker);

// Calls the stage's function.
void run_task(RankPass& pass, const Task& task, Worker& worker);

// Sum over the row's partial dot products of down_dgrad: d topk_weights of its slot.
float router_grad(const RankPass& pass, std::int64_t pool_row);

// Tile `n` of a stage: first column and how many.
struct ColumnSpan {
  std::int64_t begin, size;
};
constexpr TileShape tile_shape(Stage stage) {
  return catamount::tile_shape(kTuning.tile_set, stage);
}
inline ColumnSpan columns(Stage stage, std::int32_t n, std::int64_t total) {
  const std::int64_t begin = static_cast<std::int64_t>(n) * tile_shape(stage).n;
  return {begin, std::min<std::int64_t>(tile_shape(stage).n, total - begin)};
}

}  // namespace catamount::cpu
