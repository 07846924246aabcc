// How much memory a run takes, before it takes it.
#pragma once

#include "run_options.h"

namespace catamount::tools {

// Raises Error(not_available) where the layer clearly does not fit into this machine's free memory.
void check_memory(const RunOptions& options, const MoeConfig& config);

}  // namespace catamount::tools
