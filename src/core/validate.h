// Argument checks that every backend shares; all run before anything is written.
#pragma once

#include "catamount/moe.h"
#include "catamount/peer_memory.h"

namespace catamount {

void validate_forward(const PeerMemory& peers, const MoeConfig& config,
                      std::span<const ForwardArgs> ranks);
void validate_backward(const PeerMemory& peers, const MoeConfig& config,
                       std::span<const BackwardArgs> ranks);

// What every maker of peers is asked for.
void validate_heaps(int ep_size, std::size_t heap_bytes);

}  // namespace catamount
