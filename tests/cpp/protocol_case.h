// The vocabulary of the protocol checker: cases, deliberate mistakes, tasks as the checker sees
// them.
#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/schedule.h"

namespace catamount::test {

// Ids of all ranks in one pass: [rank][token * topk + slot].
struct PassInput {
  bool backward = false;
  std::vector<std::vector<std::int32_t>> ids;
};

struct ProtocolCase {
  std::string name;
  ScheduleConfig config;  // max_blocks and backward are filled in
  std::int64_t topk = 1;
  std::vector<PassInput> passes;  // back to back
  // Workers that claim one queue each and wait, or workers of both queues that never wait.
  bool pooled = false;
  int workers[kNumQueues] = {1, 1};  // pooled: [0] is all of them
};

inline void PrintTo(const ProtocolCase& c, std::ostream* os) { *os << c.name; }

// The kind of a wait: who waits for what. Each can be taken away, to see whether that is noticed.
struct WaitKind {
  bool backward = false;
  Stage task = Stage::routing;
  Stage on = Stage::routing;
  bool barrier = false;
  bool takeover = false;  // of a scratch gradient that an earlier expert has used

  auto operator<=>(const WaitKind&) const = default;
};

inline std::string to_string(const WaitKind& k) {
  return std::string(k.backward ? "backward: " : "forward: ") + catamount::to_string(k.task) +
         " waits for " + (k.barrier ? "the last barrier" : catamount::to_string(k.on)) +
         (k.takeover ? " of an earlier expert" : "");
}

// A protocol made wrong on purpose.
struct Mutation {
  bool drop_wait = false;
  WaitKind wait{};
  bool no_first_barrier = false;
  bool arrives_early = false;  // at the last barrier, one task before all are done
  bool idle_ranks_leave =
      false;  // a rank without tokens has no sums that wait for the last barrier
};

using Tag = std::uint16_t;  // 0: nothing yet

struct Access {
  int cell;
  Tag expected;
};

struct ModelTask {
  std::string name;
  Tag tag = 0;
  std::vector<std::pair<int, int>> waits;  // counter, count
  bool last_barrier = false;
  std::vector<Access> reads;    // of others' data
  std::vector<Access> updates;  // read, then overwritten
  std::vector<int> writes;
  int counter = -1;
  bool finishes = false;
  bool touches_peers = false;
};

// One pass on one rank.
struct RankModel {
  std::vector<ModelTask> tasks[kNumQueues];
  Tag publish_tag = 0;
  int finished_target = 0;
  int num_counters = 0;
};

}  // namespace catamount::test
