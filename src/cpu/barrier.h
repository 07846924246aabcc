// The two cross-rank barriers, and giving up. Every rank owns one word per barrier in every heap
// and is the only one to write it: release on every peer's copy, acquire on one's own.
#pragma once

#include <cstdint>

#include "cpu/rank_pass.h"

namespace catamount::cpu {

// Raised on a rank because another one failed: the other's error is the one to report.
class PeerFailed : public Error {
 public:
  using Error::Error;
};

// Tells every rank that this one has arrived.
void arrive(const RankPass& pass, Barrier barrier);

// The first rank that has not arrived, or -1.
int missing_rank(const RankPass& pass, Barrier barrier);

// Tells every rank that this one gave up.
void announce_failure(const RankPass& pass);

// Raises PeerFailed if another rank gave up in this pass.
void check_peers(const RankPass& pass);

// Raises Error(timeout) naming the rank, what it waited for, and what was expected and seen.
[[noreturn]] void fail_barrier_timeout(const RankPass& pass, Barrier barrier);

// Arrives and waits for all, at most config.timeout_s.
void arrive_and_wait(const RankPass& pass, Barrier barrier);

}  // namespace catamount::cpu
