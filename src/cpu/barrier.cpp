#include "cpu/barrier.h"

#include <chrono>
#include <thread>

#include "core/check.h"

namespace catamount::cpu {
namespace {

std::atomic_ref<std::uint64_t> word(const RankPass& pass, int owner_heap, Barrier barrier,
                                    int src) {
  HeapControl& control = pass.control(owner_heap);
  return std::atomic_ref<std::uint64_t>(control.arrived[static_cast<int>(barrier)][src]);
}

std::atomic_ref<std::uint64_t> failed_word(const RankPass& pass, int owner_heap, int src) {
  return std::atomic_ref<std::uint64_t>(pass.control(owner_heap).failed[src]);
}

const char* name(Barrier barrier) { return barrier == Barrier::first ? "first" : "last"; }

}  // namespace

void arrive(const RankPass& pass, Barrier barrier) {
  for (int r = 0; r < pass.peers.ep_size; ++r) {
    word(pass, r, barrier, pass.rank()).store(pass.pass, std::memory_order_release);
  }
}

int missing_rank(const RankPass& pass, Barrier barrier) {
  for (int r = 0; r < pass.peers.ep_size; ++r) {
    if (word(pass, pass.rank(), barrier, r).load(std::memory_order_acquire) < pass.pass) return r;
  }
  return -1;
}

void announce_failure(const RankPass& pass) {
  if (pass.heap == nullptr) return;  // never got as far as a peer table
  for (int r = 0; r < pass.peers.ep_size; ++r) {
    failed_word(pass, r, pass.rank()).store(pass.pass, std::memory_order_release);
  }
}

void check_peers(const RankPass& pass) {
  for (int r = 0; r < pass.peers.ep_size; ++r) {
    if (failed_word(pass, pass.rank(), r).load(std::memory_order_acquire) == pass.pass) {
      throw PeerFailed(ErrorCode::timeout, fmt::format("rank {}: rank {} gave up in pass {}",
                                                       pass.rank(), r, pass.pass));
    }
  }
}

void fail_barrier_timeout(const RankPass& pass, Barrier barrier) {
  const int missing = missing_rank(pass, barrier);
  fail(ErrorCode::timeout,
       "rank {}: waited {} s at the {} barrier for rank {}: expected pass {}, saw {}", pass.rank(),
       pass.config.timeout_s, name(barrier), missing, pass.pass,
       missing < 0 ? pass.pass
                   : word(pass, pass.rank(), barrier, missing).load(std::memory_order_acquire));
}

void arrive_and_wait(const RankPass& pass, Barrier barrier) {
  using Clock = std::chrono::steady_clock;
  arrive(pass, barrier);
  const auto deadline = Clock::now() + std::chrono::duration<double>(pass.config.timeout_s);
  while (missing_rank(pass, barrier) >= 0) {
    check_peers(pass);
    if (Clock::now() > deadline) fail_barrier_timeout(pass, barrier);
    std::this_thread::yield();
  }
}

}  // namespace catamount::cpu
