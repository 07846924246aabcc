#include "cuda/errors.h"

#include "core/check.h"
#include "core/layout.h"

namespace catamount::cuda {
namespace {

const char* barrier_name(std::int32_t barrier) {
  return barrier == static_cast<int>(Barrier::first) ? "first" : "last";
}

}  // namespace

void raise(const ErrorRecord& r, double timeout_s) {
  switch (r.fault) {
    case DeviceFault::invalid_routing:
      fail(ErrorCode::invalid_routing, "topk_idx[{}, {}] of rank {} must be in [-1, {}), got {}",
           r.unit, r.counter, r.peer, r.expected, static_cast<std::int64_t>(r.seen));
    case DeviceFault::counter_timeout:
      fail(ErrorCode::timeout,
           "rank {}: {} waited {} s for {} of unit {}: expected counter {} to be {}, saw {}",
           r.rank, to_string(r.stage), timeout_s, to_string(r.waits_for), r.unit, r.counter,
           r.expected, r.seen);
    case DeviceFault::barrier_timeout:
      fail(ErrorCode::timeout,
           "rank {}: {} waited {} s at the {} barrier for rank {}: expected pass {}, saw {}",
           r.rank, to_string(r.stage), timeout_s, barrier_name(r.unit), r.peer, r.expected, r.seen);
    case DeviceFault::peer_failed:
      fail(ErrorCode::timeout, "rank {}: rank {} gave up in pass {}", r.rank, r.peer, r.expected);
    case DeviceFault::none:
      break;
  }
  fail(ErrorCode::internal, "the device reported a fault of unknown kind {}",
       static_cast<std::uint32_t>(r.fault));
}

}  // namespace catamount::cuda
