// What the device left for the host, as an Error.
#pragma once

#include "cuda/device/error_record.h"

namespace catamount::cuda {

// `timeout_s`: of the pass.
[[noreturn]] void raise(const ErrorRecord& record, double timeout_s);

}  // namespace catamount::cuda
