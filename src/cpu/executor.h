// Runs one rank's schedule: workers claim tasks in order, wait on counters, advance counters.
#pragma once

#include <functional>
#include <vector>

#include "cpu/rank_pass.h"

namespace catamount::cpu {

// Scratch that one worker reuses from task to task.
struct Worker {
  Scratch a, b, c, d;
};

using RunTask = std::function<void(RankPass&, const Task&, Worker&)>;

// Runs every task with `num_workers` threads (the caller's among them); all counters must be zero.
// Adds each stage's time and the time spent waiting to `stats` if there is one. Raises the first
// error of any worker, and Error(timeout) when nothing moved for config.timeout_s.
void execute(RankPass& pass, int num_workers, const RunTask& run_task, PassStats* stats);

}  // namespace catamount::cpu
