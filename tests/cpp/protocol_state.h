// One state of a running ProtocolModel: what each rank has claimed, runs and counted, and what each
// cell of memory holds. Tasks take time: start and end are events of their own. What a task reads
// must be right at its start and still untouched at its end; what it writes is torn in between.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol_model.h"

namespace catamount::test {

struct Event {
  int rank;
  int queue;  // -1: the rank's next phase
  int claim;  // index among the queue's claimed tasks
};

class ProtocolState {
 public:
  explicit ProtocolState(const ProtocolModel& model) : model_(&model) {
    counters_begin_ = kHeader * model.ranks();
    for (int p = 0; p < model.num_passes(); ++p) {
      for (int r = 0; r < model.ranks(); ++r) {
        num_counters_ = std::max(num_counters_, model.rank(p, r).num_counters);
      }
    }
    cells_begin_ = counters_begin_ + num_counters_ * model.ranks();
    words_.assign(static_cast<std::size_t>(cells_begin_ + model.num_cells()), 0);
  }

  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(words_.data()), words_.size() * sizeof(Tag)};
  }
  bool done() const {
    for (int r = 0; r < model_->ranks(); ++r) {
      if (pass(r) < model_->num_passes()) return false;
    }
    return true;
  }

  void enabled(std::vector<Event>& out) const {
    out.clear();
    for (int r = 0; r < model_->ranks(); ++r) {
      if (pass(r) == model_->num_passes()) continue;
      if (head(r, kPhase) != kRunning) {
        if (head(r, kPhase) != kPublished || all_arrived(kFirst, pass(r)) ||
            model_->mutation().no_first_barrier) {
          out.push_back({r, -1, 0});
        }
        continue;
      }
      for (int q = 0; q < kNumQueues; ++q) {
        for (int i = 0; i < kMaxClaims && claim(r, q, i) != 0; ++i) {
          const bool is_running = (claim(r, q, i) & kRunningBit) != 0;
          if (is_running || may_start(r, q, i)) out.push_back({r, q, i});
        }
      }
    }
  }

  // What is wrong with it, or nothing.
  std::optional<std::string> apply(const Event& e) {
    if (e.queue < 0) return next_phase(e.rank);
    Tag& claimed = claim(e.rank, e.queue, e.claim);
    if ((claimed & kRunningBit) == 0) {
      claimed |= kRunningBit;
      return start(e.rank, task(e.rank, e.queue, claimed));
    }
    const ModelTask& finished = task(e.rank, e.queue, claimed);
    for (int i = e.claim; i < kMaxClaims; ++i) {
      claim(e.rank, e.queue, i) = i + 1 < kMaxClaims ? claim(e.rank, e.queue, i + 1) : Tag{0};
    }
    if (auto violation = end(e.rank, finished)) return violation;
    refill(e.rank);
    return std::nullopt;
  }

  std::optional<std::string> check_outputs() const {
    for (const int c : model_->outputs()) {
      if (cell(c) == 0 || (cell(c) & kTorn) != 0) return "an output was never written";
    }
    return std::nullopt;
  }
  Tag tag(const Event& e) const {
    return task(e.rank, e.queue, claim(e.rank, e.queue, e.claim)).tag;
  }

 private:
  static constexpr int kMaxClaims = 16;
  static constexpr Tag kRunningBit = 0x8000;
  static constexpr Tag kTorn = 0x8000;
  enum Field : int { kPass, kPhase, kFinished, kFirst, kLast, kCursor, kClaims = kCursor + 2 };
  static constexpr int kHeader = kClaims + kNumQueues * kMaxClaims;
  enum Phase : Tag { kIdle, kPublishing, kPublished, kRouting, kRunning };

  Tag& word(int i) { return words_[static_cast<std::size_t>(i)]; }
  Tag word(int i) const { return words_[static_cast<std::size_t>(i)]; }
  Tag& head(int r, int field) { return word(r * kHeader + field); }
  Tag head(int r, int field) const { return word(r * kHeader + field); }
  int pass(int r) const { return head(r, kPass); }
  Tag& claim(int r, int q, int i) { return head(r, kClaims + q * kMaxClaims + i); }
  Tag claim(int r, int q, int i) const { return head(r, kClaims + q * kMaxClaims + i); }
  Tag& cell(int i) { return word(cells_begin_ + i); }
  Tag cell(int i) const { return word(cells_begin_ + i); }
  Tag& counter(int r, int i) { return word(counters_begin_ + r * num_counters_ + i); }
  Tag counter(int r, int i) const { return word(counters_begin_ + r * num_counters_ + i); }
  const RankModel& rank(int r) const { return model_->rank(pass(r), r); }
  // A claimed task's word: its index + 1, and whether it runs.
  const ModelTask& task(int r, int q, Tag claimed) const {
    return rank(r).tasks[q][static_cast<std::size_t>(claimed & ~kRunningBit) - 1];
  }

  // Arrival words count passes.
  bool all_arrived(Field barrier, int pass_idx) const {
    for (int r = 0; r < model_->ranks(); ++r) {
      if (head(r, barrier) <= pass_idx) return false;
    }
    return true;
  }
  bool waits_over(int r, const ModelTask& t) const {
    if (t.last_barrier && !all_arrived(kLast, pass(r))) return false;
    for (const auto& [index, count] : t.waits) {
      if (counter(r, index) < count) return false;
    }
    return true;
  }
  bool may_start(int r, int q, int i) const {
    if (!waits_over(r, task(r, q, claim(r, q, i)))) return false;
    if (!model_->protocol_case().pooled) return true;
    // Workers of both queues take a head only when it can start: the rest is not claimed yet.
    int running = 0;
    for (int p = 0; p < kNumQueues; ++p) {
      for (int j = 0; j < kMaxClaims; ++j) {
        running += (claim(r, p, j) & kRunningBit) != 0 ? 1 : 0;
        if (p == q && j < i && (claim(r, p, j) & kRunningBit) == 0) return false;
      }
    }
    return running < model_->protocol_case().workers[0];
  }
  // A free worker claims at once: claiming later allows nothing more.
  void refill(int r) {
    if (pass(r) == model_->num_passes() || head(r, kPhase) != kRunning) return;
    bool busy = false;
    for (int q = 0; q < kNumQueues; ++q) {
      const ProtocolCase& c = model_->protocol_case();
      const int workers = c.pooled ? c.workers[0] : c.workers[q];
      for (int i = 0; i < workers; ++i) {
        if (claim(r, q, i) == 0 && head(r, kCursor + q) < rank(r).tasks[q].size()) {
          claim(r, q, i) = ++head(r, kCursor + q);
        }
        busy = busy || claim(r, q, i) != 0;
      }
    }
    if (!busy) leave_pass(r);
  }
  void leave_pass(int r) {
    ++head(r, kPass);
    for (const int field : {int{kPhase}, int{kFinished}, int{kCursor}, kCursor + 1})
      head(r, field) = 0;
    for (int i = 0; i < num_counters_; ++i) counter(r, i) = 0;
  }
  void arrive_if_finished(int r) {
    if (head(r, kFinished) >= rank(r).finished_target && head(r, kLast) == pass(r)) {
      ++head(r, kLast);
    }
  }

  std::optional<std::string> check_ids(int r) const {
    for (int s = 0; s < model_->ranks(); ++s) {
      if (cell(model_->published_cell(s)) != model_->rank(pass(r), s).publish_tag) {
        return "rank " + std::to_string(r) + " routing reads wrong ids of rank " +
               std::to_string(s);
      }
    }
    return std::nullopt;
  }
  std::optional<std::string> next_phase(int r) {
    const Phase now = static_cast<Phase>(head(r, kPhase));
    Tag& published = cell(model_->published_cell(r));
    ++head(r, kPhase);
    switch (now) {
      case kIdle:
        published = rank(r).publish_tag | kTorn;
        return std::nullopt;
      case kPublishing:
        published = rank(r).publish_tag;
        ++head(r, kFirst);
        return std::nullopt;
      case kPublished:
        return check_ids(r);
      default: {
        auto violation = check_ids(r);
        arrive_if_finished(r);
        refill(r);
        return violation;
      }
    }
  }

  std::optional<std::string> check(const ModelTask& t, const std::vector<Access>& accesses,
                                   const char* when) const {
    for (const Access& a : accesses) {
      if (a.expected == 0 || cell(a.cell) != a.expected) {
        return t.name + " reads wrong data at its " + when + ": cell " + std::to_string(a.cell) +
               " holds " + std::to_string(cell(a.cell)) + ", expected " +
               std::to_string(a.expected);
      }
    }
    return std::nullopt;
  }
  std::optional<std::string> check_arrival(int r, const ModelTask& t) const {
    if (t.touches_peers && head(r, kLast) > pass(r)) {
      return t.name + " touches a peer's memory after its rank's arrival at the last barrier";
    }
    return std::nullopt;
  }
  std::optional<std::string> start(int r, const ModelTask& t) {
    if (auto violation = check_arrival(r, t)) return violation;
    if (auto violation = check(t, t.reads, "start")) return violation;
    if (auto violation = check(t, t.updates, "start")) return violation;
    const auto tear = [&](int index) {
      const bool free = (cell(index) & kTorn) == 0;
      cell(index) = t.tag | kTorn;
      return free;
    };
    for (const int index : t.writes) {
      if (!tear(index)) return t.name + " writes what another task is writing";
    }
    for (const Access& a : t.updates) tear(a.cell);
    return std::nullopt;
  }
  std::optional<std::string> end(int r, const ModelTask& t) {
    if (auto violation = check_arrival(r, t)) return violation;
    if (auto violation = check(t, t.reads, "end")) return violation;
    const auto settle = [&](int index) {
      const bool own = cell(index) == (t.tag | kTorn);
      cell(index) = t.tag;
      return own;
    };
    for (const int index : t.writes) {
      if (!settle(index)) return t.name + " was overwritten while it wrote";
    }
    for (const Access& a : t.updates) {
      if (!settle(a.cell)) return t.name + " was overwritten while it added";
    }
    if (t.counter >= 0) ++counter(r, t.counter);
    if (t.finishes) {
      ++head(r, kFinished);
      arrive_if_finished(r);
    }
    return std::nullopt;
  }

  const ProtocolModel* model_;
  int num_counters_ = 0;
  int counters_begin_ = 0;
  int cells_begin_ = 0;
  std::vector<Tag> words_;  // each rank's header, counters, cells
};

}  // namespace catamount::test
