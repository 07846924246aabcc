// build_routing against a second construction: sort all (expert, t, s, k) instead of counting.
#include "core/routing.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "schedule_fixture.h"

namespace catamount {
namespace {

using test::GuardedArray;

enum class Ids { uniform, one_expert, skewed, masked, all_masked, duplicates };

struct RoutingCase {
  int ep_size;
  int experts_per_rank;
  int topk;
  std::vector<std::int64_t> tokens;  // of each rank, repeated in turn
  Ids ids;
  bool wide;  // every second rank has 64-bit ids

  std::int64_t num_experts() const { return static_cast<std::int64_t>(ep_size) * experts_per_rank; }
};

void PrintTo(const RoutingCase& c, std::ostream* os) {
  *os << "ranks " << c.ep_size << " experts " << c.num_experts() << " topk " << c.topk << " ids "
      << static_cast<int>(c.ids) << " T";
  for (const std::int64_t t : c.tokens) *os << ' ' << t;
}

// Published ids and weights of all ranks.
class Group {
 public:
  explicit Group(const RoutingCase& c) : case_(c), random_(12345) {
    for (int s = 0; s < c.ep_size; ++s) {
      const std::int64_t tokens = c.tokens[static_cast<std::size_t>(s) % c.tokens.size()];
      std::vector<std::int64_t> ids;
      std::vector<float> weights;
      for (std::int64_t i = 0; i < tokens * c.topk; ++i) {
        ids.push_back(draw(ids.empty() || i % c.topk == 0 ? -2 : ids.back()));
        weights.push_back(static_cast<float>(s * 1000000 + i) + 0.5F);
      }
      narrow_.emplace_back(ids.begin(), ids.end());
      ids_.push_back(ids);
      weights_.push_back(weights);
    }
  }

  std::int64_t tokens(int s) const {
    return static_cast<std::int64_t>(ids_[static_cast<std::size_t>(s)].size()) / case_.topk;
  }
  std::int64_t& id(int s, std::int64_t t, std::int64_t k) {
    return ids_[static_cast<std::size_t>(s)][static_cast<std::size_t>(t * case_.topk + k)];
  }
  float weight(int s, std::int64_t t, std::int64_t k) const {
    return weights_[static_cast<std::size_t>(s)][static_cast<std::size_t>(t * case_.topk + k)];
  }
  std::vector<RankSlots> slots() {
    std::vector<RankSlots> out;
    for (std::size_t s = 0; s < ids_.size(); ++s) {
      const bool wide = case_.wide && s % 2 == 0;
      narrow_[s].assign(ids_[s].begin(), ids_[s].end());
      const void* data = wide ? static_cast<const void*>(ids_[s].data()) : narrow_[s].data();
      out.push_back({tokens(static_cast<int>(s)), data, wide, weights_[s].data()});
    }
    return out;
  }

 private:
  std::int64_t draw(std::int64_t previous) {
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
    };
    const std::int64_t e = case_.num_experts();
    switch (case_.ids) {
      case Ids::one_expert:
        return e - 1;
      case Ids::skewed:
        return below(4) == 0 ? below(e) : below((e + 7) / 8);
      case Ids::masked:
        return below(3) == 0 ? -1 : below(e);
      case Ids::all_masked:
        return -1;
      case Ids::duplicates:
        return previous >= 0 && below(2) == 0 ? previous : below(e);
      default:
        return below(e);
    }
  }

  RoutingCase case_;
  std::mt19937_64 random_;
  std::vector<std::vector<std::int64_t>> ids_;
  std::vector<std::vector<std::int32_t>> narrow_;
  std::vector<std::vector<float>> weights_;
};

void matches_sorted_slots(const RoutingCase& c) {
  Group group(c);
  const std::vector<RankSlots> slots = group.slots();
  ASSERT_FALSE(find_bad_id({0, c.ep_size, c.num_experts(), c.topk}, slots.data()).found);

  std::size_t all_rows = 0;
  for (int rank = 0; rank < c.ep_size; ++rank) {
    // (expert of this rank, t, s, k) of each row, sorted: the row order.
    std::set<std::tuple<std::int64_t, std::int64_t, int, std::int64_t>> rows;
    for (int s = 0; s < c.ep_size; ++s) {
      for (std::int64_t t = 0; t < group.tokens(s); ++t) {
        for (std::int64_t k = 0; k < c.topk; ++k) {
          const std::int64_t e = group.id(s, t, k);
          if (e >= 0 && e / c.experts_per_rank == rank) {
            rows.emplace(e % c.experts_per_rank, t, s, k);
          }
        }
      }
    }
    all_rows += rows.size();

    std::vector<std::int64_t> expert_rows(static_cast<std::size_t>(c.experts_per_rank), 0);
    for (const auto& row : rows) ++expert_rows[static_cast<std::size_t>(std::get<0>(row))];
    std::vector<std::int32_t> block_begin{0};
    for (const std::int64_t n : expert_rows) {
      block_begin.push_back(block_begin.back() + static_cast<std::int32_t>((n + 127) / 128));
    }

    const std::int64_t own_slots = group.tokens(rank) * c.topk;
    GuardedArray<std::int64_t> got_rows(c.experts_per_rank);
    GuardedArray<std::int32_t> got_begin(c.experts_per_rank + 1);
    GuardedArray<RowSource> source(block_begin.back() * 128);
    GuardedArray<float> weight(block_begin.back() * 128);
    GuardedArray<std::int32_t> slot_row(own_slots);
    GuardedArray<std::int64_t> next(c.experts_per_rank);
    const RoutingTables tables{got_rows.data(), got_begin.data(), source.data(), weight.data(),
                               slot_row.data()};
    const std::int64_t num_blocks = build_routing({rank, c.ep_size, c.num_experts(), c.topk},
                                                  slots.data(), tables, next.data());

    ASSERT_EQ(num_blocks, block_begin.back());
    ASSERT_EQ(std::vector(got_begin.data(), got_begin.data() + c.experts_per_rank + 1),
              block_begin);
    ASSERT_EQ(std::vector(got_rows.data(), got_rows.data() + c.experts_per_rank), expert_rows);

    std::vector<std::int32_t> want_slot_row(static_cast<std::size_t>(own_slots));
    for (std::int64_t i = 0; i < own_slots; ++i) {
      want_slot_row[static_cast<std::size_t>(i)] =
          group.id(rank, i / c.topk, i % c.topk) == -1 ? -1 : -2;
    }
    auto next_row = rows.begin();
    for (std::int64_t e = 0; e < c.experts_per_rank; ++e) {
      const std::int64_t end = std::int64_t{block_begin[static_cast<std::size_t>(e) + 1]} * 128;
      for (std::int64_t r = std::int64_t{block_begin[static_cast<std::size_t>(e)]} * 128; r < end;
           ++r) {
        if (next_row == rows.end() || std::get<0>(*next_row) != e) {
          ASSERT_EQ(source.data()[r].rank, -1) << "padding row " << r;
          ASSERT_EQ(weight.data()[r], 0.0F);
          continue;
        }
        const auto [expert, t, s, k] = *next_row++;
        ASSERT_EQ(source.data()[r].token, t) << "row " << r;
        ASSERT_EQ(source.data()[r].rank, s) << "row " << r;
        ASSERT_EQ(source.data()[r].slot, k) << "row " << r;
        ASSERT_EQ(weight.data()[r], group.weight(s, t, k)) << "row " << r;
        if (s == rank) {
          want_slot_row[static_cast<std::size_t>(t * c.topk + k)] = static_cast<std::int32_t>(r);
        }
      }
    }
    ASSERT_EQ(next_row, rows.end());
    ASSERT_EQ(std::vector(slot_row.data(), slot_row.data() + own_slots), want_slot_row);
    ASSERT_TRUE(got_rows.intact() && got_begin.intact() && source.intact() && weight.intact() &&
                slot_row.intact() && next.intact());
  }

  // No slot is lost between the ranks.
  std::size_t unmasked = 0;
  for (int s = 0; s < c.ep_size; ++s) {
    for (std::int64_t i = 0; i < group.tokens(s) * c.topk; ++i) {
      unmasked += group.id(s, i / c.topk, i % c.topk) >= 0 ? 1 : 0;
    }
  }
  ASSERT_EQ(all_rows, unmasked);
}

// Each planted id is found where it is, and the first of two in (rank, token, slot) order.
void finds_the_first_bad_id(const RoutingCase& c) {
  const RoutingShape shape{0, c.ep_size, c.num_experts(), c.topk};
  std::mt19937 random(7);
  for (const std::int64_t bad : {c.num_experts(), std::int64_t{-2}, c.num_experts() + 1000}) {
    Group group(c);
    std::set<std::tuple<int, std::int64_t, std::int64_t>> planted;
    for (int i = 0; i < 2; ++i) {
      const int s = static_cast<int>(random() % static_cast<unsigned>(c.ep_size));
      if (group.tokens(s) == 0) continue;
      const std::int64_t t = random() % group.tokens(s);
      const std::int64_t k = random() % c.topk;
      group.id(s, t, k) = bad;
      planted.emplace(s, t, k);
      const RoutingFault fault = find_bad_id(shape, group.slots().data());
      ASSERT_TRUE(fault.found);
      EXPECT_EQ(std::tuple(fault.rank, fault.token, fault.slot), *planted.begin());
      EXPECT_EQ(fault.expert, bad);
    }
  }
}

std::vector<RoutingCase> routing_cases() {
  std::vector<RoutingCase> cases;
  const std::vector<std::vector<std::int64_t>> tokens{{0},      {1},     {7},        {129},
                                                      {129, 0}, {7, 65}, {0, 33, 1}, {1000}};
  const int experts_per_rank[] = {1, 2, 3, 8, 64};
  const int topks[] = {1, 2, 3, 4, 6, 8};
  std::size_t i = 0;  // walks the other axes while ranks, tokens and ids are complete
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const auto& t : tokens) {
      for (const Ids ids : {Ids::uniform, Ids::one_expert, Ids::skewed, Ids::masked,
                            Ids::all_masked, Ids::duplicates}) {
        int experts = experts_per_rank[i % 5];
        while (experts * ranks > 64 && experts > 1) experts /= 2;
        cases.push_back({ranks, experts, topks[(i / 5) % 6], t, ids, i % 3 != 0});
        ++i;
      }
    }
  }
  for (int topk = 1; topk <= 8; ++topk) cases.push_back({2, 4, topk, {129, 7}, Ids::masked, true});
  return cases;
}

// Each test runs all cases of one number of ranks.
class Routing : public testing::TestWithParam<int> {
 protected:
  static void each(void (*check)(const RoutingCase&)) {
    for (const RoutingCase& c : routing_cases()) {
      if (c.ep_size != GetParam()) continue;
      SCOPED_TRACE(testing::PrintToString(c));
      check(c);
      if (HasFailure()) return;
    }
  }
};

TEST_P(Routing, MatchesSortedSlots) { each(matches_sorted_slots); }
TEST_P(Routing, FindsTheFirstBadId) { each(finds_the_first_bad_id); }

INSTANTIATE_TEST_SUITE_P(Ranks, Routing, testing::Values(1, 2, 3, 4, 8));

TEST(RoutingIds, MinusOneIsNoFaultAndWideIdsAreNotCut) {
  const std::vector<std::int64_t> ids{-1, 0, (std::int64_t{1} << 32) + 1};
  const RankSlots slots{3, ids.data(), true, nullptr};
  const RoutingFault fault = find_bad_id({0, 1, 4, 1}, &slots);
  ASSERT_TRUE(fault.found);
  EXPECT_EQ(fault.token, 2);
  EXPECT_EQ(fault.expert, (std::int64_t{1} << 32) + 1);
}

}  // namespace
}  // namespace catamount
