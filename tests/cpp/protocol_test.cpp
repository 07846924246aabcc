// The protocol of a pass, checked: ranks, workers, waits and the two barriers never get stuck,
// never read what is not there and never overwrite what is still needed; and every wait is there
// for a reason (docs/protocol.md).
#include <gtest/gtest.h>

#include <bitset>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "protocol_cases.h"
#include "protocol_checker.h"

namespace catamount::test {
namespace {

std::string case_name(const testing::TestParamInfo<ProtocolCase>& info) { return info.param.name; }

class SmallCase : public testing::TestWithParam<ProtocolCase> {};

TEST_P(SmallCase, HoldsInEveryInterleaving) {
  const Verdict verdict = explore_all(ProtocolModel(GetParam(), {}), 1000000);
  EXPECT_FALSE(verdict.violation) << *verdict.violation;
  EXPECT_TRUE(verdict.complete) << verdict.states << " states seen";
  RecordProperty("states", std::to_string(verdict.states));
}

INSTANTIATE_TEST_SUITE_P(Exhaustive, SmallCase, testing::ValuesIn(small_cases()), case_name);

class LargeCase : public testing::TestWithParam<ProtocolCase> {};

TEST_P(LargeCase, HoldsInRandomInterleavings) {
  const Verdict verdict = explore_random(ProtocolModel(GetParam(), {}), 200, 1);
  EXPECT_FALSE(verdict.violation) << *verdict.violation;
  RecordProperty("events", std::to_string(verdict.states));
}

INSTANTIATE_TEST_SUITE_P(Random, LargeCase, testing::ValuesIn(large_cases()), case_name);

// What the first case says in which the mutation does harm; empty: none does.
std::string harm_of(const Mutation& mutation) {
  for (const ProtocolCase& c : small_cases()) {
    const Verdict verdict = explore_all(ProtocolModel(c, mutation), 20000);
    if (verdict.violation) return c.name + ": " + *verdict.violation;
  }
  for (const ProtocolCase& c : large_cases()) {
    const Verdict verdict = explore_random(ProtocolModel(c, mutation), 20, 1);
    if (verdict.violation) return c.name + ": " + *verdict.violation;
  }
  return "";
}

std::set<WaitKind> all_wait_kinds() {
  std::set<WaitKind> kinds;
  for (const auto& cases : {small_cases(), large_cases()}) {
    for (const ProtocolCase& c : cases) kinds.merge(std::set(ProtocolModel(c, {}).wait_kinds()));
  }
  return kinds;
}

// Which tasks must have ended before one starts: by waits alone, however tasks are claimed.
class HappensBefore {
 public:
  explicit HappensBefore(const RankModel& rank)
      : advances_(static_cast<std::size_t>(rank.num_counters)) {
    for (const auto& queue : rank.tasks) {
      for (const ModelTask& t : queue) tasks_.push_back(&t);
    }
    before_.resize(tasks_.size());
    known_.resize(tasks_.size());
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (tasks_[i]->counter >= 0)
        advances_[static_cast<std::size_t>(tasks_[i]->counter)].push_back(i);
    }
  }

  // Whether everything that task i of `other` waits for has ended before task i of this one starts.
  bool covers(const HappensBefore& other) {
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      for (const auto& [counter, count] : other.tasks_[i]->waits) {
        for (const std::size_t j : advances_[static_cast<std::size_t>(counter)]) {
          if (!before(i)[j]) return false;
        }
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t kMaxTasks = 4096;

  const std::bitset<kMaxTasks>& before(std::size_t i) {
    if (known_[i]) return before_[i];
    known_[i] = true;
    for (const auto& [counter, count] : tasks_[i]->waits) {
      for (const std::size_t j : advances_[static_cast<std::size_t>(counter)]) {
        before_[i] |= before(j);
        before_[i].set(j);
      }
    }
    return before_[i];
  }

  std::vector<const ModelTask*> tasks_;
  std::vector<std::vector<std::size_t>> advances_;  // [counter] its tasks
  std::vector<std::bitset<kMaxTasks>> before_;
  std::vector<bool> known_;
};

// Whether the other waits of each task already imply this kind, in every case.
bool implied(const WaitKind& kind) {
  if (kind.barrier) return false;  // no counter of this rank tells that peers have arrived
  for (const auto& cases : {small_cases(), large_cases()}) {
    for (const ProtocolCase& c : cases) {
      const ProtocolModel whole(c, {});
      const ProtocolModel without(c, {.drop_wait = true, .wait = kind});
      for (int p = 0; p < whole.num_passes(); ++p) {
        for (int r = 0; r < whole.ranks(); ++r) {
          if (!HappensBefore(without.rank(p, r)).covers(HappensBefore(whole.rank(p, r)))) {
            return false;
          }
        }
      }
    }
  }
  return true;
}

// Take away one kind of wait at a time. That does harm, or other waits imply it: nothing escapes.
TEST(Teeth, EveryWaitIsNeededOrImplied) {
  const std::set<WaitKind> kinds = all_wait_kinds();
  EXPECT_GE(kinds.size(), 21U);
  for (const WaitKind& kind : kinds) {
    const std::string harm = harm_of({.drop_wait = true, .wait = kind});
    EXPECT_EQ(harm.empty(), implied(kind)) << to_string(kind) << ": " << harm;
    RecordProperty(to_string(kind), harm.empty() ? "implied by other waits" : harm);
  }
}

TEST(Teeth, FirstBarrier) { EXPECT_NE(harm_of({.no_first_barrier = true}), ""); }
TEST(Teeth, ArrivalAtTheLastBarrier) { EXPECT_NE(harm_of({.arrives_early = true}), ""); }
TEST(Teeth, IdleRanksWaitForTheLastBarrier) { EXPECT_NE(harm_of({.idle_ranks_leave = true}), ""); }

// Rows that are sent home before the tiles they wait for, in the order of claims, stop a single
// mover.
TEST(Teeth, HomeLagBelowGemmLagGetsStuck) {
  ProtocolCase c = small_case("", 2, 1, 8);
  c.config.lag_tasks = 2;
  c.passes = {{true, {ids_of({700}), {}}}};
  EXPECT_FALSE(explore_all(ProtocolModel(c, {}), 1000000).violation);
  c.config.lead_runs = -4;  // the lag of both tracks that follow
  EXPECT_NE(explore_all(ProtocolModel(c, {}), 1000000).violation.value_or("").find("stuck"),
            std::string::npos);
}

}  // namespace
}  // namespace catamount::test
