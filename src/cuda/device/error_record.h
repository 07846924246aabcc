// What a failing wait on the device leaves for the host to make an Error of.
#pragma once

#include <cstdint>

#include "core/stage.h"

namespace catamount::cuda {

enum class DeviceFault : std::uint32_t {
  none,
  counter_timeout,  // stage waited for waits_for of unit: counter, expected, seen
  barrier_timeout,  // waited for peer at barrier `unit` (Barrier): expected and seen passes
  peer_failed,      // `peer` gave up in this pass
  invalid_routing,  // routing only: peer, unit = token, counter = slot, seen = expert
};

struct ErrorRecord {
  DeviceFault fault;
  Stage stage;
  Stage waits_for;
  std::int32_t rank;
  std::int32_t peer;
  std::int32_t unit;
  std::int32_t counter;
  std::uint64_t expected;
  std::uint64_t seen;
};

}  // namespace catamount::cuda
