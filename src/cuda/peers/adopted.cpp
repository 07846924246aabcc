// Heaps that somebody else has made and mapped.
#include "core/validate.h"
#include "cuda/peers/cuda_peers.h"

namespace catamount {

std::unique_ptr<PeerMemory> make_adopted_peers(int rank, std::span<void* const> bases,
                                               std::size_t heap_bytes) {
  const int ep_size = static_cast<int>(bases.size());
  validate_heaps(ep_size, heap_bytes);
  check(rank >= 0 && rank < ep_size, "rank must be in [0, {}), got {}", ep_size, rank);
  std::vector<cuda::CudaPeers::Heap> heaps;
  for (int r = 0; r < ep_size; ++r) {
    void* base = bases[static_cast<std::size_t>(r)];
    constexpr std::uintptr_t kAlign = 256;
    check(base != nullptr && reinterpret_cast<std::uintptr_t>(base) % kAlign == 0,
          "the heap of rank {} must be aligned to {} bytes, got {}", r, kAlign, fmt::ptr(base));
    cudaPointerAttributes attributes{};
    cuda::check_cuda(cudaPointerGetAttributes(&attributes, base), "looking at adopted heaps",
                     ErrorCode::not_available);
    check(attributes.type == cudaMemoryTypeDevice || r != rank,
          "the heap of rank {} must be device memory, got {}", r, fmt::ptr(base));
    heaps.push_back({attributes.device, static_cast<std::byte*>(base), nullptr});
  }
  cuda::check_device(heaps[static_cast<std::size_t>(rank)].device);
  return std::make_unique<cuda::CudaPeers>(std::move(heaps), heap_bytes, std::vector<int>{rank},
                                           false);
}

}  // namespace catamount
