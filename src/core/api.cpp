// The public entry points: check everything, then hand over to the backend of the peer memory.
#include "catamount/peer_memory.h"
#include "core/validate.h"
#include "cpu/pass.h"
#include "cuda/pass.h"

namespace catamount {

void forward(PeerMemory& peers, const MoeConfig& config, std::span<const ForwardArgs> ranks) {
  validate_forward(peers, config, ranks);
  if (peers.backend() == Backend::cuda) return cuda::forward(peers, config, ranks);
  cpu::forward(peers, config, ranks);
}

void backward(PeerMemory& peers, const MoeConfig& config, std::span<const BackwardArgs> ranks) {
  validate_backward(peers, config, ranks);
  if (peers.backend() == Backend::cuda) return cuda::backward(peers, config, ranks);
  cpu::backward(peers, config, ranks);
}

}  // namespace catamount
