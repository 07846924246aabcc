// The schedule's structure against a recount from first principles, over a sweep of shapes.
#include "core/schedule.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "schedule_cases.h"
#include "schedule_fixture.h"

namespace catamount {
namespace {

using test::Expected;
using test::make_case;
using test::OwnedSchedule;
using test::ScheduleCase;
using test::Tasks;

// One case, built, and what must hold of it.
class Subject {
 public:
  explicit Subject(const ScheduleCase& c)
      : case_(c),
        begin_(test::prefix_sums(c.blocks)),
        built_(c.config, c.tokens, begin_),
        s_(*built_) {}

  void has_every_task_once() const;
  void stays_inside_its_tables() const;
  void runs_lie_in_one_window() const;
  void pieces_partition_experts() const;
  void finds_any_task() const;
  void one_worker_finishes() const;
  void ends_with_the_last_barrier() const;

 private:
  ScheduleCase case_;
  std::vector<std::int32_t> begin_;
  OwnedSchedule built_;
  const Schedule& s_;
};

void Subject::has_every_task_once() const {
  const Expected expected(case_);
  Tasks got;
  std::int64_t finished = 0;
  for (const Queue queue : {Queue::move, Queue::compute}) {
    for (const Task& t : built_.tasks(queue)) {
      ASSERT_EQ(ScheduleConfig::is_move(t.stage), queue == Queue::move) << to_string(t.stage);
      ++got[{t.stage, t.shared, t.expert, t.block, t.m, t.n}];
      finished += s_.counts_as_finished(t.stage, t.shared) ? 1 : 0;
    }
  }
  EXPECT_EQ(got, expected.tasks);
  EXPECT_EQ(finished, expected.finished);
  EXPECT_EQ(s_.finished_target, expected.finished);
}

void Subject::stays_inside_its_tables() const {
  EXPECT_TRUE(built_.intact());
  EXPECT_LE(s_.num_runs, s_.config.max_runs());
  EXPECT_LE(s_.num_pieces, s_.config.max_pieces());
  EXPECT_LE(s_.num_windows, s_.config.max_windows());
  EXPECT_LE(s_.num_segments[0], s_.config.max_segments());
  EXPECT_LE(s_.num_segments[1], s_.config.max_segments());
}

void Subject::runs_lie_in_one_window() const {
  const std::int32_t capacity = s_.config.capacity_blocks;
  const auto shared = static_cast<std::int32_t>(case_.blocks.size());
  std::vector<int> covered(static_cast<std::size_t>(s_.num_blocks), 0);
  std::vector<int> covered_shared(static_cast<std::size_t>(s_.num_shared_blocks), 0);
  for (std::int32_t w = 0; w < s_.num_windows; ++w) {
    for (std::int32_t r = s_.tables.window_run[w]; r < s_.tables.window_run[w + 1]; ++r) {
      const catamount::Run& run = s_.tables.runs[r];
      const Piece& piece = s_.tables.pieces[run.piece];
      ASSERT_GT(run.num_blocks, 0);
      ASSERT_LE(run.num_blocks, s_.config.group_blocks);
      ASSERT_EQ(run.expert, piece.expert);
      ASSERT_GE(run.block, piece.block);
      ASSERT_LE(run.block + run.num_blocks, piece.block + piece.num_blocks);
      ASSERT_EQ(run.ends_piece, run.block + run.num_blocks == piece.block + piece.num_blocks);
      if (run.expert == shared) {
        ASSERT_EQ(w, 0);
      } else {
        ASSERT_EQ(run.block / capacity, w);
        ASSERT_EQ((run.block + run.num_blocks - 1) / capacity, w);
        ASSERT_GE(run.block, begin_[static_cast<std::size_t>(run.expert)]);
        ASSERT_LE(run.block + run.num_blocks, begin_[static_cast<std::size_t>(run.expert) + 1]);
      }
      for (std::int32_t b = run.block; b < run.block + run.num_blocks; ++b) {
        ++(run.expert == shared ? covered_shared : covered)[static_cast<std::size_t>(b)];
      }
    }
  }
  EXPECT_EQ(s_.tables.window_run[s_.num_windows], s_.num_runs);
  for (const int n : covered) ASSERT_EQ(n, 1);
  for (const int n : covered_shared) ASSERT_EQ(n, 1);
}

void Subject::pieces_partition_experts() const {
  std::int32_t p = 0;
  std::vector<std::int32_t> straddlers;  // their last pieces
  for (std::int32_t e = 0; e < s_.config.num_local_experts; ++e) {
    const std::int32_t end = begin_[static_cast<std::size_t>(e) + 1];
    std::int32_t block = begin_[static_cast<std::size_t>(e)];
    const std::int32_t first = p;
    do {
      ASSERT_LT(p, s_.num_pieces);
      const Piece& piece = s_.tables.pieces[p];
      ASSERT_EQ(piece.expert, e);
      ASSERT_EQ(piece.block, block);
      ASSERT_EQ(piece.first, p == first);
      block += piece.num_blocks;
      ASSERT_EQ(piece.last, block == end);
      // As long as it can be: up to the expert's or the window's end.
      ASSERT_TRUE(block == end || block % s_.config.capacity_blocks == 0);
      for (std::int32_t b = piece.block; b < block; ++b) ASSERT_EQ(s_.tables.block_piece[b], p);
      ++p;
    } while (block < end);
    const std::size_t n = straddlers.size();
    for (std::int32_t i = first; i < p; ++i) {
      const Piece& piece = s_.tables.pieces[i];
      const bool alone = first + 1 == p;
      ASSERT_EQ(piece.scratch, alone ? -1 : static_cast<std::int32_t>(n % 2));
      // Sums add up in order; a scratch gradient is taken over only when its owner is done.
      const std::int32_t owner_before = !alone && n >= 2 ? straddlers[n - 2] : -1;
      ASSERT_EQ(piece.wait_piece, i > first ? i - 1 : owner_before);
    }
    if (first + 1 < p) straddlers.push_back(p - 1);
  }
  if (s_.config.shared_intermediate > 0) {
    const Piece& piece = s_.tables.pieces[p++];
    EXPECT_EQ(piece.expert, s_.config.num_local_experts);
    EXPECT_EQ(piece.num_blocks, s_.num_shared_blocks);
    EXPECT_TRUE(piece.first && piece.last && piece.scratch == -1 && piece.wait_piece == -1);
  }
  EXPECT_EQ(p, s_.num_pieces);
}

bool same(const Task& a, const Task& b) {
  return a.stage == b.stage && a.shared == b.shared && a.expert == b.expert && a.block == b.block &&
         a.piece == b.piece && a.m == b.m && a.n == b.n;
}

void Subject::finds_any_task() const {
  std::mt19937 random(3);
  for (const Queue queue : {Queue::move, Queue::compute}) {
    const std::vector<Task> tasks = built_.tasks(queue);
    for (int i = 0; i < 200 && !tasks.empty(); ++i) {
      const std::size_t a = random() % tasks.size();
      const std::size_t b = a + random() % (tasks.size() - a);
      std::int32_t hint = 0;
      ASSERT_TRUE(same(s_.task(queue, static_cast<std::int64_t>(a), &hint), tasks[a]));
      ASSERT_TRUE(same(s_.task(queue, static_cast<std::int64_t>(b), &hint), tasks[b]));
      ASSERT_TRUE(same(s_.task(queue, static_cast<std::int64_t>(b), &hint), tasks[b]));
    }
  }
}

// Counters a pass has advanced so far.
class Counters {
 public:
  explicit Counters(const Schedule& s)
      : s_(s), counts_(static_cast<std::size_t>(s.config.num_counters()), 0) {}

  bool over(const Wait& wait) const {
    if (wait.barrier) return finished_ == s_.finished_target;
    for (std::int32_t unit = wait.begin; unit < wait.end; ++unit) {
      if (counts_.at(static_cast<std::size_t>(s_.counter(wait.stage, unit))) <
          s_.config.tasks_per_unit(wait.stage, wait.shared)) {
        return false;
      }
    }
    return true;
  }
  void complete(const Task& task) {
    const std::int32_t counter = s_.advances(task);
    if (counter >= 0) {
      ASSERT_LE(++counts_.at(static_cast<std::size_t>(counter)),
                s_.config.tasks_per_unit(task.stage, task.shared));
      ASSERT_NE(counter, s_.config.finished_counter());
    }
    if (s_.counts_as_finished(task.stage, task.shared)) ++finished_;
  }

 private:
  const Schedule& s_;
  std::vector<int> counts_;
  std::int64_t finished_ = 0;
};

// One worker that runs whichever head is ready finishes the pass: waits and claims form no cycle.
void Subject::one_worker_finishes() const {
  for (const int preferred : {0, 1}) {
    const std::vector<Task> tasks[2] = {built_.tasks(Queue::move), built_.tasks(Queue::compute)};
    std::size_t next[2] = {0, 0};
    Counters counters(s_);
    while (next[0] < tasks[0].size() || next[1] < tasks[1].size()) {
      bool moved = false;
      for (const int q : {preferred, 1 - preferred}) {
        if (next[q] == tasks[q].size()) continue;
        const Task& task = tasks[q][next[q]];
        Wait waits[kMaxWaits + 1];
        waits[kMaxWaits].begin = -77;
        const int n = s_.waits(task, waits);
        ASSERT_LE(n, kMaxWaits);
        ASSERT_EQ(waits[kMaxWaits].begin, -77);
        bool ready = true;
        for (int i = 0; i < n; ++i) {
          ASSERT_TRUE(waits[i].barrier || waits[i].begin < waits[i].end);
          ready = ready && counters.over(waits[i]);
        }
        if (!ready) continue;
        counters.complete(task);
        ++next[q];
        moved = true;
        break;
      }
      ASSERT_TRUE(moved) << "stuck at move " << next[0] << " of " << tasks[0].size() << ", compute "
                         << next[1] << " of " << tasks[1].size();
    }
  }
}

// Nobody leaves a pass before the last barrier: the last task of each pass waits for it.
void Subject::ends_with_the_last_barrier() const {
  const Task last = built_.tasks(Queue::compute).back();
  Wait waits[kMaxWaits];
  ASSERT_EQ(s_.waits(last, waits), 1);
  EXPECT_TRUE(waits[0].barrier);
  EXPECT_EQ(last.stage, s_.final_stage());
}

// Each test runs a group of cases: thousands of shapes, not thousands of tests.
class ScheduleSweep : public testing::TestWithParam<std::uint32_t> {
 protected:
  static constexpr std::uint32_t kCases = 100;

  void each(void (Subject::*check)() const) const {
    for (std::uint32_t i = 0; i < kCases && !HasFailure(); ++i) {
      const ScheduleCase c = make_case(GetParam() * kCases + i);
      SCOPED_TRACE(testing::PrintToString(c));
      (Subject(c).*check)();
    }
  }
};

TEST_P(ScheduleSweep, HasEveryTaskOnceAndNoOther) { each(&Subject::has_every_task_once); }
TEST_P(ScheduleSweep, StaysInsideItsTables) { each(&Subject::stays_inside_its_tables); }
TEST_P(ScheduleSweep, RunsLieInOneWindowOfOneExpert) { each(&Subject::runs_lie_in_one_window); }
TEST_P(ScheduleSweep, PiecesPartitionTheExperts) { each(&Subject::pieces_partition_experts); }
TEST_P(ScheduleSweep, FindsAnyTaskFromAnyEarlierHint) { each(&Subject::finds_any_task); }
TEST_P(ScheduleSweep, OneWorkerFinishes) { each(&Subject::one_worker_finishes); }
TEST_P(ScheduleSweep, EndsWithTheLastBarrier) { each(&Subject::ends_with_the_last_barrier); }

INSTANTIATE_TEST_SUITE_P(Cases, ScheduleSweep, testing::Range(0U, 16U));

}  // namespace
}  // namespace catamount
