// The frame of both passes: one thread per rank driven here, barriers around the tasks, one error
// out.
#pragma once

#include <functional>

#include "cpu/rank_pass.h"

namespace catamount::cpu {

void forward(PeerMemory& peers, const MoeConfig& config, std::span<const ForwardArgs> ranks);
void backward(PeerMemory& peers, const MoeConfig& config, std::span<const BackwardArgs> ranks);

}  // namespace catamount::cpu
