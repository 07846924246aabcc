// What one rank's pass knows on the device, beside its tables.
#pragma once

#include <cstdint>

#include "catamount/peer_memory.h"
#include "core/layout.h"
#include "core/schedule.h"
#include "cuda/device/error_record.h"

namespace catamount::cuda {

// In the rank's device memory. The routing kernel writes all of it.
struct PassState {
  Schedule schedule;
  std::uint64_t pass;                     // number of this pass: what barrier words count
  unsigned long long cursor[kNumQueues];  // next task of each queue; 0
  // 0: go on. Set by whoever fails first (routing too): every wait is over, nobody starts a task.
  std::uint32_t abort;
  ErrorRecord* host_error;            // in host memory: where the first failure is reported
  PublishedInputs inputs[kMaxRanks];  // of every rank, copied after the first barrier
};

}  // namespace catamount::cuda
