// Shapes for schedule_test.cpp, and the tasks each must have, counted from what the layer computes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <ostream>
#include <random>
#include <tuple>
#include <vector>

#include "core/schedule.h"

namespace catamount::test {

struct ScheduleCase {
  ScheduleConfig config;
  std::int64_t tokens = 0;
  std::vector<std::int32_t> blocks;  // routed row blocks of each expert
};

inline void PrintTo(const ScheduleCase& c, std::ostream* os) {
  *os << (c.config.backward ? "backward" : "forward") << " T " << c.tokens << " capacity "
      << c.config.capacity_blocks << " kept " << c.config.kept_blocks << " blocks";
  for (const std::int32_t n : c.blocks) *os << ' ' << n;
}

// `seed` walks the axes below; the arrays are what each axis may hold.
inline ScheduleCase make_case(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::initializer_list<int> values) {
    return *(values.begin() + random() % values.size());
  };
  ScheduleCase c;
  ScheduleConfig& g = c.config;
  g.backward = seed % 2 == 1;
  g.ep_size = pick({1, 2, 8});
  g.num_local_experts = pick({1, 1, 2, 3, 5, 16});
  g.hidden = pick({8, 128, 256, 384, 640});
  g.intermediate = pick({8, 128, 136, 256, 520});
  g.shared_intermediate = pick({0, 0, 64, 264});
  g.group_blocks = 1 + static_cast<std::int32_t>(random() % 8);
  g.lag_tasks = pick({0, 1, 5, 16, 100, 100000});
  g.lead_runs = pick({0, 1, 2, 4, 9});
  g.rows_per_move = pick({8, 16, 40, 64, 128});
  g.tokens_per_sum = pick({1, 64, 100});
  c.tokens = pick({0, 0, 1, 127, 128, 129, 700});
  const int spread = pick({0, 1, 3, 3, 12});
  std::int32_t total = 0;
  for (int e = 0; e < g.num_local_experts; ++e) {
    c.blocks.push_back(spread == 0 ? 0 : static_cast<std::int32_t>(random() % (spread + 1)));
    total += c.blocks.back();
  }
  // Often exactly what is needed: no slack that hides a table written too far.
  g.max_blocks = total + pick({0, 0, 3});
  g.max_shared_blocks =
      g.shared_intermediate > 0 ? static_cast<std::int32_t>((c.tokens + 127) / 128) : 0;
  const std::int32_t capacities[] = {1, 2, 3, 1 + total / 2, std::max(1, total), total + 5};
  g.capacity_blocks = capacities[random() % 6];
  g.kept_blocks = pick({0, 1}) * g.capacity_blocks;
  g.kept_x = g.kept_blocks > 0 && pick({0, 1}) == 1;
  g.kept_shared = g.kept_blocks > 0;
  return c;
}

// (stage, shared, expert, row block or first block of the piece, m, n)
using Key = std::tuple<Stage, bool, std::int32_t, std::int32_t, std::int32_t, std::int32_t>;
using Tasks = std::map<Key, int>;

// Every task that must exist, from what the layer computes.
class Expected {
 public:
  explicit Expected(const ScheduleCase& c) : c_(c), g_(c.config) {
    std::int32_t block = 0;
    for (std::size_t e = 0; e < c.blocks.size(); ++e) {
      add_expert(static_cast<std::int32_t>(e), block, c.blocks[e]);
      block += c.blocks[e];
    }
    if (g_.shared_intermediate > 0) add_shared();
    const auto sums = std::max<std::int64_t>(1, ceil(c.tokens, g_.tokens_per_sum));
    for (std::int32_t i = 0; i < sums; ++i) {
      ++tasks[{g_.backward ? Stage::dispatch_grad : Stage::combine, false, 0, 0, 0, i}];
    }
  }

  Tasks tasks;
  std::int64_t finished = 0;

 private:
  static std::int32_t ceil(std::int64_t a, std::int64_t b) {
    return static_cast<std::int32_t>(a / b + (a % b != 0 ? 1 : 0));
  }
  void add(Stage stage, bool shared, std::int32_t e, std::int32_t block, std::int32_t m_tiles,
           std::int32_t n_tiles, bool finishes) {
    for (std::int32_t m = 0; m < m_tiles; ++m) {
      for (std::int32_t n = 0; n < n_tiles; ++n) ++tasks[{stage, shared, e, block, m, n}];
    }
    if (finishes) finished += static_cast<std::int64_t>(m_tiles) * n_tiles;
  }
  void add_block(std::int32_t e, std::int32_t block, bool shared) {
    std::int32_t total = 0;
    for (const std::int32_t n : c_.blocks) total += n;
    const bool home = !shared && (g_.ep_size > 1 || total > g_.capacity_blocks);
    const bool kept = shared ? g_.kept_shared : block < g_.kept_blocks;
    const std::int32_t inter = ceil(shared ? g_.shared_intermediate : g_.intermediate, 128);
    const std::int32_t hidden = ceil(g_.hidden, 256);
    const std::int32_t parts = ceil(128, g_.rows_per_move);
    if (!shared) {
      if (g_.backward) add(Stage::combine_grad, false, e, block, 1, parts, true);
      if (!g_.backward || !kept || !g_.kept_x)
        add(Stage::dispatch, false, e, block, 1, parts, true);
      if (home) add(Stage::send_home, false, e, block, 1, parts, true);
    }
    if (!g_.backward || !kept) add(Stage::gate_up, shared, e, block, 1, inter, false);
    if (g_.backward) {
      add(Stage::down_dgrad, shared, e, block, 1, inter, false);
      add(Stage::gate_up_dgrad, shared, e, block, 1, hidden, !home);
    } else {
      add(Stage::down, shared, e, block, 1, hidden, !home);
    }
  }
  void add_wgrads(std::int32_t e, std::int32_t first_block, bool shared) {
    if (!g_.backward) return;
    const std::int64_t inter = shared ? g_.shared_intermediate : g_.intermediate;
    add(Stage::down_wgrad, shared, e, first_block, ceil(g_.hidden, 128), ceil(inter, 256), false);
    add(Stage::gate_up_wgrad, shared, e, first_block, 2 * ceil(inter, 128), ceil(g_.hidden, 256),
        false);
  }
  void add_expert(std::int32_t e, std::int32_t block, std::int32_t num_blocks) {
    for (std::int32_t b = block; b < block + num_blocks; ++b) {
      add_block(e, b, false);
      if (b == block || b % g_.capacity_blocks == 0) add_wgrads(e, b, false);
    }
    if (num_blocks == 0) add_wgrads(e, block, false);
  }
  void add_shared() {
    const auto e = static_cast<std::int32_t>(c_.blocks.size());
    for (std::int32_t b = 0; b < ceil(c_.tokens, 128); ++b) add_block(e, b, true);
    add_wgrads(e, 0, true);
  }

  const ScheduleCase& c_;
  const ScheduleConfig& g_;
};

}  // namespace catamount::test
