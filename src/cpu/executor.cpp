#include "cpu/executor.h"

#include <array>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "core/check.h"
#include "cpu/barrier.h"

namespace catamount::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

struct StageTimes {
  std::array<double, kNumStages> busy{};
  std::array<std::int64_t, kNumStages> tasks{};
  double wait = 0;

  void add(const StageTimes& other) {
    for (std::size_t i = 0; i < busy.size(); ++i) {
      busy[i] += other.busy[i];
      tasks[i] += other.tasks[i];
    }
    wait += other.wait;
  }
};

class Executor {
 public:
  Executor(RankPass& pass, const RunTask& run_task)
      : pass_(pass), run_task_(run_task), last_progress_(Clock::now()) {
    if (pass_.schedule.finished_target == 0) arrive(pass_, Barrier::last);
    for (int q = 0; q < kNumQueues; ++q) load_head(q);
  }

  // One worker's life. Errors end up in error_.
  void work() {
    try {
      Worker worker;
      StageTimes times;
      while (const std::optional<Task> task = claim(times)) {
        const auto begin = Clock::now();
        run_task_(pass_, *task, worker);
        complete(*task);
        --running_;
        const auto stage = static_cast<std::size_t>(task->stage);
        times.busy[stage] += seconds(Clock::now() - begin);
        ++times.tasks[stage];
      }
      const std::lock_guard lock(mutex_);
      times_.add(times);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }
  const StageTimes& times() const { return times_; }

 private:
  // The next task of either queue whose waits are over; none when all are claimed or a worker
  // failed. A claimed task never waits, so a single worker is enough.
  std::optional<Task> claim(StageTimes& times) {
    const auto begin = Clock::now();
    bool waited = false;
    for (;; waited = true) {
      {
        const std::lock_guard lock(mutex_);
        if (error_ || (!head_[0] && !head_[1])) return std::nullopt;
        for (int q = 0; q < kNumQueues; ++q) {
          if (!head_[q] || !ready(*head_[q])) continue;
          const Task task = *head_[q];
          ++cursor_[q];
          ++running_;
          load_head(q);
          last_progress_ = Clock::now();
          if (waited) times.wait += seconds(last_progress_ - begin);
          return task;
        }
        check_peers(pass_);
        if (running_ > 0) {  // a running task ends by itself, however long it takes
          last_progress_ = Clock::now();
        } else if (seconds(Clock::now() - last_progress_) > pass_.config.timeout_s) {
          fail_timeout();
        }
      }
      std::this_thread::yield();
    }
  }

  void load_head(int q) {
    const Schedule& s = pass_.schedule;
    head_[q].reset();
    if (cursor_[q] < s.num_tasks[q]) {
      head_[q] = s.task(static_cast<Queue>(q), cursor_[q], &hint_[q]);
    }
  }

  std::atomic_ref<std::uint32_t> counter(std::int32_t index) const {
    return std::atomic_ref<std::uint32_t>(pass_.at<std::uint32_t>(pass_.layout.counters)[index]);
  }

  // The first unit of a wait whose tasks are not all done; -1 if the wait is over.
  std::int32_t pending_unit(const Wait& wait) const {
    const Schedule& s = pass_.schedule;
    const auto target =
        static_cast<std::uint32_t>(s.config.tasks_per_unit(wait.stage, wait.shared));
    for (std::int32_t unit = wait.begin; unit < wait.end; ++unit) {
      if (counter(s.counter(wait.stage, unit)).load(std::memory_order_acquire) < target)
        return unit;
    }
    return -1;
  }

  bool over(const Wait& wait) const {
    return wait.barrier ? missing_rank(pass_, Barrier::last) < 0 : pending_unit(wait) < 0;
  }

  bool ready(const Task& task) const {
    Wait waits[kMaxWaits];
    const int n = pass_.schedule.waits(task, waits);
    for (int i = 0; i < n; ++i) {
      if (!over(waits[i])) return false;
    }
    return true;
  }

  void complete(const Task& task) {
    const Schedule& s = pass_.schedule;
    const std::int32_t index = s.advances(task);
    if (index >= 0) counter(index).fetch_add(1, std::memory_order_acq_rel);
    if (s.counts_as_finished(task.stage, task.shared)) {
      const std::uint32_t before =
          counter(s.config.finished_counter()).fetch_add(1, std::memory_order_acq_rel);
      if (before + 1 == s.finished_target) arrive(pass_, Barrier::last);
    }
  }

  // Names what the head of a queue waits for. Called with the lock held.
  [[noreturn]] void fail_timeout() const {
    const Schedule& s = pass_.schedule;
    for (int q = 0; q < kNumQueues; ++q) {
      if (!head_[q]) continue;
      Wait waits[kMaxWaits];
      const int n = s.waits(*head_[q], waits);
      for (int i = 0; i < n; ++i) {
        if (over(waits[i])) continue;
        if (waits[i].barrier) fail_barrier_timeout(pass_, Barrier::last);
        const std::int32_t unit = pending_unit(waits[i]);
        const std::int32_t index = s.counter(waits[i].stage, unit);
        fail(ErrorCode::timeout,
             "rank {}: {} waited {} s for {} of unit {} (counter {}): expected {}, saw {}",
             pass_.rank(), to_string(head_[q]->stage), pass_.config.timeout_s,
             to_string(waits[i].stage), unit, index,
             s.config.tasks_per_unit(waits[i].stage, waits[i].shared),
             counter(index).load(std::memory_order_acquire));
      }
    }
    fail(ErrorCode::internal, "rank {}: stuck without a wait", pass_.rank());
  }

  RankPass& pass_;
  const RunTask& run_task_;
  std::mutex mutex_;
  std::array<std::optional<Task>, kNumQueues> head_;
  std::array<std::int64_t, kNumQueues> cursor_{};
  std::array<std::int32_t, kNumQueues> hint_{};
  std::atomic<int> running_{0};
  Clock::time_point last_progress_;
  StageTimes times_;
  std::exception_ptr error_;
};

}  // namespace

void execute(RankPass& pass, int num_workers, const RunTask& run_task, PassStats* stats) {
  Executor executor(pass, run_task);
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < num_workers; ++i) threads.emplace_back([&] { executor.work(); });
    executor.work();
  }
  executor.rethrow();
  if (stats == nullptr) return;
  const StageTimes& times = executor.times();
  stats->wait_s = times.wait;
  for (int i = 0; i < kNumStages; ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (times.tasks[index] == 0) continue;
    stats->stages.push_back(
        {to_string(static_cast<Stage>(i)), times.busy[index], times.tasks[index]});
  }
}

}  // namespace catamount::cpu
