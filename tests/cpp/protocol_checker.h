// Runs a ProtocolModel: every interleaving of small cases, random ones of large cases.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "protocol_state.h"

namespace catamount::test {

struct Verdict {
  std::optional<std::string> violation;
  bool complete = false;  // every reachable state was seen
  std::size_t states = 0;
};

// Every reachable state, depth first, up to `max_states`. States are told apart by 64-bit hashes.
inline Verdict explore_all(const ProtocolModel& model, std::size_t max_states) {
  Verdict verdict;
  std::unordered_set<std::size_t> seen;
  std::vector<ProtocolState> stack{ProtocolState(model)};
  std::vector<Event> events;
  const auto is_new = [&](const ProtocolState& s) {
    return seen.insert(std::hash<std::string_view>{}(s.bytes())).second;
  };
  while (!stack.empty() && seen.size() < max_states) {
    const ProtocolState state = std::move(stack.back());
    stack.pop_back();
    state.enabled(events);
    if (events.empty()) {
      verdict.violation = state.done() ? state.check_outputs() : "stuck: no task can start or end";
      if (verdict.violation) return verdict;
    }
    for (const Event& e : events) {
      ProtocolState next = state;
      verdict.violation = next.apply(e);
      if (verdict.violation) return verdict;
      if (is_new(next)) stack.push_back(std::move(next));
    }
  }
  verdict.states = seen.size();
  verdict.complete = stack.empty();
  return verdict;
}

// Random interleavings. In each run some ranks, queues and tasks are slow, by factors so large that
// any task may be overtaken by all others.
inline Verdict explore_random(const ProtocolModel& model, std::uint32_t runs, std::uint32_t seed) {
  Verdict verdict;
  std::vector<Event> events;
  std::vector<double> weights;
  for (std::uint32_t run = 0; run < runs; ++run) {
    std::mt19937 random(seed + run);
    const auto speed = [&] { return 1.0 / static_cast<double>(1U << (random() % 12)); };
    std::vector<double> speeds;  // [rank][phases, move, compute]
    for (int i = 0; i < 3 * model.ranks(); ++i) speeds.push_back(speed());
    const std::uint32_t salt = random();
    const auto dawdles = [&](Tag tag) { return ((tag + salt) * 2654435761U >> 16) % 8 == 0; };
    ProtocolState state(model);
    for (std::uint32_t step = 0;; ++step) {
      state.enabled(events);
      if (events.empty()) {
        verdict.violation =
            state.done() ? state.check_outputs() : "stuck: no task can start or end";
        break;
      }
      weights.clear();
      for (const Event& e : events) {
        double w = speeds[static_cast<std::size_t>(3 * e.rank + 1 + e.queue)];
        if (e.queue >= 0 && dawdles(state.tag(e))) w *= 1e-3;
        weights.push_back(w);
      }
      const Event& e =
          events[std::discrete_distribution<std::size_t>(weights.begin(), weights.end())(random)];
      verdict.violation = state.apply(e);
      if (verdict.violation) break;
      ++verdict.states;
    }
    if (verdict.violation) return verdict;
  }
  return verdict;
}

}  // namespace catamount::test
