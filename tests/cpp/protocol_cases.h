// Cases for the protocol checker: small ones for every interleaving, large ones for random runs.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "protocol_case.h"

namespace catamount::test {

// Rows that one rank's tokens send to each expert, one after another (topk 1).
inline std::vector<std::int32_t> ids_of(const std::vector<int>& rows_of_expert) {
  std::vector<std::int32_t> ids;
  for (std::size_t e = 0; e < rows_of_expert.size(); ++e) {
    ids.insert(ids.end(), static_cast<std::size_t>(rows_of_expert[e]),
               static_cast<std::int32_t>(e));
  }
  return ids;
}

inline ProtocolCase small_case(std::string name, int ranks, int experts_per_rank, int capacity) {
  ProtocolCase c;
  c.name = std::move(name);
  c.config.ep_size = ranks;
  c.config.num_local_experts = experts_per_rank;
  c.config.hidden = 128;
  c.config.intermediate = 128;
  c.config.capacity_blocks = capacity;
  c.config.group_blocks = 1;
  c.config.lead_runs = 1;
  c.config.tokens_per_sum = 100000;
  return c;
}

inline std::vector<ProtocolCase> small_cases() {
  std::vector<ProtocolCase> cases;
  const auto add = [&](ProtocolCase c) { cases.push_back(std::move(c)); };
  const auto with_workers = [](ProtocolCase c, const char* suffix, bool pooled, int a, int b) {
    c.name += suffix;
    c.pooled = pooled;
    c.workers[0] = a;
    c.workers[1] = b;
    return c;
  };

  // One rank, one expert of four row blocks in a pool of two.
  ProtocolCase reuse = small_case("forward_reuse", 1, 1, 2);
  reuse.passes = {{false, {ids_of({500})}}};
  add(with_workers(reuse, "_1_1", false, 1, 1));
  add(with_workers(reuse, "_2_2", false, 2, 2));
  add(with_workers(reuse, "_pool_1", true, 1, 0));
  add(with_workers(reuse, "_pool_3", true, 3, 0));
  reuse.name = "forward_reuse_parts_tiles";
  reuse.config.capacity_blocks = 1;
  reuse.config.rows_per_move = 64;
  reuse.config.intermediate = 256;
  reuse.config.hidden = 512;
  reuse.passes = {{false, {ids_of({300})}}};
  add(with_workers(reuse, "_2_2", false, 2, 2));

  // x in a ring that is smaller than the other pools.
  ProtocolCase ring = small_case("forward_x_ring", 1, 1, 4);
  ring.config.x_blocks = 2;
  ring.passes = {{false, {ids_of({500})}}};
  add(with_workers(ring, "_1_1", false, 1, 1));
  add(with_workers(ring, "_2_2", false, 2, 2));
  add(with_workers(ring, "_pool_3", true, 3, 0));
  ring.name = "forward_x_ring_windows";
  ring.config.capacity_blocks = 3;
  ring.config.x_blocks = 1;
  add(with_workers(ring, "_2_2", false, 2, 2));

  // Backward over windows: one expert in scratch, then three that straddle.
  ProtocolCase back = small_case("backward_reuse", 1, 1, 1);
  back.passes = {{true, {ids_of({300})}}};
  add(with_workers(back, "_1_1", false, 1, 1));
  add(with_workers(back, "_2_2", false, 2, 2));
  add(with_workers(back, "_pool_1", true, 1, 0));
  add(with_workers(back, "_pool_3", true, 3, 0));
  add(with_workers(back, "_2_4", false, 2, 4));
  // Three tracks that follow each other at a lag, windows of three runs.
  back.name = "backward_lag";
  back.config.capacity_blocks = 3;
  back.config.lag_tasks = 1;
  back.passes = {{true, {ids_of({600})}}};
  add(with_workers(back, "_2_2", false, 2, 2));
  back.config.capacity_blocks = 1;
  back.config.lag_tasks = 0;
  back.passes = {{true, {ids_of({300})}}};
  back.name = "backward_kept";
  back.config.kept_blocks = 1;
  add(with_workers(back, "_2_2", false, 2, 2));
  back.name = "backward_kept_x";
  back.config.kept_x = true;
  add(with_workers(back, "_2_2", false, 2, 2));
  ProtocolCase straddle = small_case("backward_straddlers", 1, 3, 1);
  straddle.passes = {{true, {ids_of({200, 200, 200})}}};
  add(with_workers(straddle, "_1_2", false, 1, 2));
  add(with_workers(straddle, "_1_4", false, 1, 4));

  // Two ranks, two passes back to back: a fast rank is a pass ahead.
  ProtocolCase pair = small_case("pair_forward", 2, 1, 1);
  pair.passes = {{false, {ids_of({100, 50}), ids_of({0, 100})}},
                 {false, {ids_of({30, 100}), ids_of({60, 60})}}};
  add(with_workers(pair, "_1_1", false, 1, 1));
  pair.name = "pair_forward_windows";
  pair.passes[0].ids = {ids_of({200, 50}), ids_of({200, 200})};
  pair.passes[1].ids = {ids_of({50, 100}), ids_of({100, 150})};
  add(with_workers(pair, "_1_1", false, 1, 1));
  add(with_workers(pair, "_2_2", false, 2, 2));
  pair.name = "pair_forward_backward";
  pair.passes[1] = pair.passes[0];
  pair.passes[1].backward = true;
  pair.config.kept_blocks = 1;
  add(with_workers(pair, "_1_1", false, 1, 1));
  pair.name = "pair_roomy";
  pair.config.capacity_blocks = 4;
  pair.config.kept_blocks = 4;
  pair.config.kept_x = true;
  add(with_workers(pair, "_1_1", false, 1, 1));
  pair.name = "pair_backward_windows";
  pair.config.capacity_blocks = 1;
  pair.config.kept_blocks = 0;
  pair.config.kept_x = false;
  pair.passes[0] = {true, {ids_of({200, 50}), ids_of({0, 100})}};
  pair.passes[1] = {true, {ids_of({50, 200}), ids_of({100, 0})}};
  add(with_workers(pair, "_1_1", false, 1, 1));
  add(with_workers(pair, "_2_2", false, 2, 2));
  ProtocolCase trio = small_case("trio_forward", 3, 1, 1);
  trio.passes = {{false, {ids_of({40, 40, 40}), ids_of({100, 0, 60}), {}}},
                 {false, {ids_of({0, 90, 40}), {}, ids_of({10, 50, 5})}}};
  add(with_workers(trio, "_1_1", false, 1, 1));
  ProtocolCase lone = small_case("idle_rank", 2, 1, 2);
  lone.passes = {{false, {ids_of({100}), {}}}, {false, {ids_of({100}), {}}}};
  add(with_workers(lone, "_1_1", false, 1, 1));
  return cases;
}

// Random ids, skewed so that some ranks work through several windows.
inline std::vector<std::int32_t> random_ids(std::mt19937& random, std::int64_t slots, int experts) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < slots; ++i) {
    const int limit = random() % 3 == 0 ? experts : (experts + 3) / 4;
    const int id = static_cast<int>(random() % static_cast<unsigned>(limit));
    ids.push_back(random() % 16 == 0 ? -1 : id);
  }
  return ids;
}

inline std::vector<ProtocolCase> large_cases() {
  std::vector<ProtocolCase> cases;
  for (std::uint32_t seed = 0; seed < 24; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](std::initializer_list<int> values) {
      return *(values.begin() + random() % values.size());
    };
    const int ranks = pick({1, 2, 4, 8});
    ProtocolCase c =
        small_case("seed_" + std::to_string(seed), ranks, pick({1, 2, 3}), pick({1, 2, 3, 100}));
    c.topk = pick({1, 2});
    c.config.hidden = pick({128, 384});
    c.config.intermediate = pick({128, 200});
    c.config.shared_intermediate = pick({0, 0, 200});
    c.config.group_blocks = pick({1, 2, 4});
    c.config.lag_tasks = pick({0, 2, 8});
    c.config.lead_runs = pick({0, 1, 4});
    c.config.rows_per_move = pick({32, 64, 128});
    c.config.tokens_per_sum = pick({64, 150});
    c.config.kept_blocks = pick({0, 1, 1}) * c.config.capacity_blocks;
    c.config.kept_x = c.config.kept_blocks > 0 && pick({0, 1}) == 1;
    c.config.kept_shared = c.config.kept_blocks > 0;
    c.pooled = pick({0, 0, 1}) == 1;
    c.workers[0] = pick({1, 2, 4, 8});
    c.workers[1] = pick({1, 2, 4, 16});
    c.config.x_blocks = c.config.group_blocks + static_cast<std::int32_t>(seed % 3);
    PassInput forward;
    for (int r = 0; r < ranks; ++r) {
      const std::int64_t tokens = pick({0, 1, 130, 300});
      forward.ids.push_back(
          random_ids(random, tokens * c.topk, ranks * c.config.num_local_experts));
    }
    PassInput backward = forward;
    backward.backward = true;
    c.passes = {forward, backward};
    if (seed % 3 == 0) c.passes = {backward, forward};
    cases.push_back(c);
  }
  // Three experts straddle windows, the third takes over the first one's scratch; enough workers to
  // get there while the first one still adds up.
  ProtocolCase takeover = small_case("takeover", 1, 3, 2);
  takeover.passes = {{true, {ids_of({300, 200, 200})}}};
  takeover.workers[0] = 8;
  takeover.workers[1] = 16;
  cases.push_back(takeover);
  return cases;
}

}  // namespace catamount::test
