// A schedule with its own tables, guarded by canaries: for the tests of core/schedule.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/schedule.h"

namespace catamount::test {

// An array of `size` elements between bytes that nobody may write.
template <class T>
class GuardedArray {
 public:
  explicit GuardedArray(std::int64_t size)
      : bytes_(2 * kGuard + static_cast<std::size_t>(size) * sizeof(T), kCanary) {}

  T* data() { return reinterpret_cast<T*>(bytes_.data() + kGuard); }
  bool intact() const {
    const auto canary = [](std::byte b) { return b == kCanary; };
    return std::all_of(bytes_.begin(), bytes_.begin() + kGuard, canary) &&
           std::all_of(bytes_.end() - kGuard, bytes_.end(), canary);
  }

 private:
  static constexpr std::byte kCanary{0xA5};
  static constexpr std::ptrdiff_t kGuard = 64;
  std::vector<std::byte> bytes_;
};

class OwnedSchedule {
 public:
  OwnedSchedule(const ScheduleConfig& config, std::int64_t tokens,
                const std::vector<std::int32_t>& block_begin)
      : runs_(config.max_runs()),
        pieces_(config.max_pieces()),
        block_piece_(config.max_blocks),
        window_run_(config.max_windows() + 1),
        move_(config.max_segments()),
        compute_(config.max_segments()) {
    const ScheduleTables tables{runs_.data(),
                                pieces_.data(),
                                block_piece_.data(),
                                window_run_.data(),
                                {move_.data(), compute_.data()}};
    build_schedule(config, tokens, block_begin.data(), tables, &schedule_);
  }
  OwnedSchedule(OwnedSchedule&&) = default;  // the tables stay where they are

  const Schedule& operator*() const { return schedule_; }
  const Schedule* operator->() const { return &schedule_; }
  bool intact() const {
    return runs_.intact() && pieces_.intact() && block_piece_.intact() && window_run_.intact() &&
           move_.intact() && compute_.intact();
  }
  // All tasks of a queue, in order.
  std::vector<Task> tasks(Queue queue) const {
    std::vector<Task> out;
    std::int32_t hint = 0;
    for (std::int64_t i = 0; i < schedule_.num_tasks[static_cast<int>(queue)]; ++i) {
      out.push_back(schedule_.task(queue, i, &hint));
    }
    return out;
  }

 private:
  GuardedArray<Run> runs_;
  GuardedArray<Piece> pieces_;
  GuardedArray<std::int32_t> block_piece_;
  GuardedArray<std::int32_t> window_run_;
  GuardedArray<Segment> move_;
  GuardedArray<Segment> compute_;
  Schedule schedule_;
};

// Row blocks of each expert -> first row block of each.
inline std::vector<std::int32_t> prefix_sums(const std::vector<std::int32_t>& blocks) {
  std::vector<std::int32_t> begin{0};
  for (const std::int32_t n : blocks) begin.push_back(begin.back() + n);
  return begin;
}

}  // namespace catamount::test
