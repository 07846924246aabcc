// The public entry points: check everything, then hand over to the backend of the peer memory.
#include "catamount/peer_memory.h"
#include "core/validate.h"
#include "cpu/pass.h"
#include "cuda/pass.h"

namespace catamount {

void forward(PeerMemory& peers, const MoeConfig& config, std::span<const ForwardArgs> ranks,
             Stream stream) {
  validate_forward(peers, config, ranks);
  if (peers.backend() == Backend::cuda) return cuda::forward(peers, config, ranks, stream);
  cpu::forward(peers, config, ranks);
}

void backward(PeerMemory& peers, const MoeConfig& config, std::span<const BackwardArgs> ranks,
              Stream stream) {
  validate_backward(peers, config, ranks);
  if (peers.backend() == Backend::cuda) return cuda::backward(peers, config, ranks, stream);
  cpu::backward(peers, config, ranks);
}

void synchronize(PeerMemory& peers, Stream stream) {
  if (peers.backend() == Backend::cuda) cuda::synchronize(peers, stream);
}

}  // namespace catamount
