// The CUDA backend's entry points. A build without CUDA has src/no_cuda/ in its place.
#pragma once

#include "catamount/moe.h"
#include "catamount/peer_memory.h"

namespace catamount::cuda {

void forward(PeerMemory& peers, const MoeConfig& config, std::span<const ForwardArgs> ranks,
             Stream stream);
void backward(PeerMemory& peers, const MoeConfig& config, std::span<const BackwardArgs> ranks,
              Stream stream);
void synchronize(PeerMemory& peers, Stream stream);

}  // namespace catamount::cuda
