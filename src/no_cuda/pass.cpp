// Stands in for src/cuda/ in builds without CUDA.
#include "cuda/pass.h"

#include "core/check.h"

namespace catamount::cuda {

namespace {
[[noreturn]] void fail_without_cuda() {
  fail(ErrorCode::not_available, "this build has no CUDA backend: configure with preset cuda");
}
}  // namespace

void forward(PeerMemory&, const MoeConfig&, std::span<const ForwardArgs>, Stream) {
  fail_without_cuda();
}
void backward(PeerMemory&, const MoeConfig&, std::span<const BackwardArgs>, Stream) {
  fail_without_cuda();
}
void synchronize(PeerMemory&, Stream) { fail_without_cuda(); }

}  // namespace catamount::cuda
