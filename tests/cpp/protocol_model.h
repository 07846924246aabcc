// The static half of the protocol checker: the tasks of a few passes on all ranks, from the
// schedule that runs in production, with what each waits for, reads and writes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/routing.h"
#include "core/schedule.h"
#include "protocol_case.h"
#include "protocol_effects.h"
#include "protocol_memory.h"
#include "schedule_fixture.h"

namespace catamount::test {

class ProtocolModel {
 public:
  ProtocolModel(const ProtocolCase& c, const Mutation& mutation)
      : case_(c), mutation_(mutation), memory_(static_cast<int>(c.passes.size()), ranks()) {
    for (int p = 0; p < static_cast<int>(c.passes.size()); ++p) {
      passes_.emplace_back(static_cast<std::size_t>(ranks()));
      for (int r = 0; r < ranks(); ++r) add_rank(p, r);
    }
    memory_.resolve([&](Tag tag) -> ModelTask& {
      const auto& [pass, r, q, index] = where_.at(tag);
      return rank_model(pass, r).tasks[q][index];
    });
  }

  int ranks() const { return case_.config.ep_size; }
  int num_passes() const { return static_cast<int>(passes_.size()); }
  int num_cells() const { return memory_.num_cells(); }
  const ProtocolCase& protocol_case() const { return case_; }
  const Mutation& mutation() const { return mutation_; }
  const RankModel& rank(int pass, int r) const {
    return passes_[static_cast<std::size_t>(pass)][static_cast<std::size_t>(r)];
  }
  int published_cell(int r) const { return memory_.published_cell(r); }
  // Cells that must have been written in the end.
  const std::vector<int>& outputs() const { return outputs_; }
  const std::set<WaitKind>& wait_kinds() const { return wait_kinds_; }

 private:
  RankModel& rank_model(int pass, int r) {
    return passes_[static_cast<std::size_t>(pass)][static_cast<std::size_t>(r)];
  }

  void add_waits(const Schedule& s, const Task& t, std::map<std::int32_t, int>& counters,
                 ModelTask& out) {
    const auto counter = [&](std::int32_t index) {
      return counters.try_emplace(index, static_cast<int>(counters.size())).first->second;
    };
    Wait waits[kMaxWaits];
    const int n = s.waits(t, waits);
    for (int i = 0; i < n; ++i) {
      const WaitKind kind{s.config.backward, t.stage, waits[i].stage, waits[i].barrier,
                          waits[i].stage == t.stage && s.tables.pieces[t.piece].first &&
                              ScheduleConfig::is_wgrad(t.stage)};
      wait_kinds_.insert(kind);
      const bool dropped = mutation_.drop_wait && kind == mutation_.wait;
      if (waits[i].barrier) out.last_barrier = !dropped;
      for (std::int32_t unit = waits[i].begin; unit < waits[i].end; ++unit) {
        // Numbered also if dropped: counters bear the same numbers in all mutations.
        const int index = counter(s.counter(waits[i].stage, unit));
        if (dropped) continue;
        out.waits.emplace_back(index, s.config.tasks_per_unit(waits[i].stage, waits[i].shared));
      }
    }
    if (s.advances(t) >= 0) out.counter = counter(s.advances(t));
    out.finishes = s.counts_as_finished(t.stage, t.shared);
  }

  void add_rank(int pass, int r) {
    const PassInput& input = case_.passes[static_cast<std::size_t>(pass)];
    std::vector<RankSlots> slots;
    std::size_t all_slots = 0;
    std::int64_t max_tokens = 0;
    for (const auto& ids : input.ids) all_slots += ids.size();
    const std::vector<float> weights(all_slots, 1.0F);
    for (const auto& ids : input.ids) {
      const auto tokens = static_cast<std::int64_t>(ids.size()) / case_.topk;
      slots.push_back({tokens, ids.data(), false, weights.data()});
      max_tokens = std::max(max_tokens, tokens);
    }
    ScheduleConfig config = case_.config;
    config.backward = input.backward;
    config.max_blocks =
        static_cast<std::int32_t>(all_slots / kBlockRows) + config.num_local_experts;
    config.max_shared_blocks = static_cast<std::int32_t>(ceil_div(max_tokens, kBlockRows));

    const auto experts = static_cast<std::size_t>(config.num_local_experts);
    std::vector<std::int64_t> expert_rows(experts);
    std::vector<std::int64_t> next(experts);
    std::vector<std::int32_t> block_begin(experts + 1);
    std::vector<RowSource> rows(static_cast<std::size_t>(config.max_blocks * kBlockRows));
    std::vector<float> row_weight(rows.size());
    std::vector<std::int32_t> slot_row(input.ids[static_cast<std::size_t>(r)].size());
    const RoutingShape shape{r, config.ep_size,
                             std::int64_t{config.ep_size} * config.num_local_experts, case_.topk};
    const RoutingTables tables{expert_rows.data(), block_begin.data(), rows.data(),
                               row_weight.data(), slot_row.data()};
    build_routing(shape, slots.data(), tables, next.data());
    const OwnedSchedule schedule(config, slots[static_cast<std::size_t>(r)].tokens, block_begin);
    add_tasks(pass, r, schedule, {*schedule, rows, slot_row});
    add_outputs(pass, r, *schedule);
  }

  void add_tasks(int pass, int r, const OwnedSchedule& schedule, const RankTables& tables) {
    RankModel& out = rank_model(pass, r);
    out.publish_tag = memory_.publish_tag(pass, r);
    TaskEffects effects(memory_, case_, pass, r, tables);
    std::map<std::int32_t, int> counters;
    for (int q = 0; q < kNumQueues; ++q) {
      for (const Task& t : schedule.tasks(static_cast<Queue>(q))) {
        const bool idle = schedule->tokens == 0 && t.stage == schedule->final_stage();
        if (mutation_.idle_ranks_leave && idle) continue;
        ModelTask task;
        task.tag = memory_.new_tag();
        task.name = "pass " + std::to_string(pass) + " rank " + std::to_string(r) + " " +
                    catamount::to_string(t.stage) + (t.shared ? " shared" : "") + " block " +
                    std::to_string(t.block) + " tile " + std::to_string(t.m) + "," +
                    std::to_string(t.n);
        add_waits(*schedule, t, counters, task);
        effects.add(t, task);
        where_[task.tag] = {pass, r, q, out.tasks[q].size()};
        out.tasks[q].push_back(std::move(task));
      }
    }
    out.finished_target =
        static_cast<int>(schedule->finished_target) - (mutation_.arrives_early ? 1 : 0);
    out.num_counters = static_cast<int>(counters.size());
  }

  // What must have been written in the end, from the configuration alone.
  void add_outputs(int pass, int r, const Schedule& s) {
    const ScheduleConfig& g = s.config;
    for (std::int32_t i = 0; i < ceil_div(s.tokens, g.tokens_per_sum); ++i) {
      outputs_.push_back(memory_.cell(r, {Data::out, false, i, 0, pass}));
    }
    if (!g.backward) return;
    const bool has_shared = g.shared_intermediate > 0;
    for (std::int32_t e = 0; e < g.num_local_experts + (has_shared ? 1 : 0); ++e) {
      const bool shared = e == g.num_local_experts;
      for (const Stage stage : {Stage::down_wgrad, Stage::gate_up_wgrad}) {
        const bool down = stage == Stage::down_wgrad;
        for (std::int32_t m = 0; m < g.m_tiles(stage, shared); ++m) {
          for (std::int32_t n = 0; n < g.n_tiles(stage, shared); ++n) {
            const std::int32_t tile = TaskEffects::wgrad_tile(m, n);
            outputs_.push_back(memory_.cell(r, {Data::grad, down, e, tile, pass}));
          }
        }
      }
    }
  }

  ProtocolCase case_;
  Mutation mutation_;
  ProtocolMemory memory_;
  std::vector<std::vector<RankModel>> passes_;
  std::vector<int> outputs_;
  std::set<WaitKind> wait_kinds_;
  std::map<Tag, std::tuple<int, int, int, std::size_t>> where_;  // pass, rank, queue, index
};

}  // namespace catamount::test
