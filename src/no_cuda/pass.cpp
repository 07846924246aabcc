// Stands in for src/cuda/ in builds without CUDA.
#include "cuda/pass.h"

#include "core/check.h"

namespace catamount::cuda {

void forward(PeerMemory&, const MoeConfig&, std::span<const ForwardArgs>) {
  fail(ErrorCode::not_available, "this build has no CUDA backend: configure with preset cuda");
}

void backward(PeerMemory&, const MoeConfig&, std::span<const BackwardArgs>) {
  fail(ErrorCode::not_available, "this build has no CUDA backend: configure with preset cuda");
}

}  // namespace catamount::cuda
