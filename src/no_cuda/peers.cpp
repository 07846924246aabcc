// Stands in for src/cuda/peers/ in builds without CUDA.
#include "catamount/peer_memory.h"
#include "core/check.h"

namespace catamount {

namespace {
[[noreturn]] void fail_without_cuda() {
  fail(ErrorCode::not_available, "this build has no CUDA backend: configure with preset cuda");
}
}  // namespace

std::unique_ptr<PeerMemory> make_virtual_peers(int, std::size_t, int) { fail_without_cuda(); }
std::unique_ptr<PeerMemory> make_device_peers(std::span<const int>, std::size_t) {
  fail_without_cuda();
}
std::unique_ptr<PeerMemory> make_adopted_peers(int, std::span<void* const>, std::size_t) {
  fail_without_cuda();
}

}  // namespace catamount
