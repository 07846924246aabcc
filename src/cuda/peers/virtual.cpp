// Ranks that share one GPU: a heap each, one launch for all.
#include <numeric>

#include "core/validate.h"
#include "cuda/peers/cuda_peers.h"

namespace catamount {

std::unique_ptr<PeerMemory> make_virtual_peers(int ep_size, std::size_t heap_bytes, int device) {
  validate_heaps(ep_size, heap_bytes);
  check(ep_size <= cuda::kMaxLaunchRanks, "at most {} virtual ranks share a GPU, got {}",
        cuda::kMaxLaunchRanks, ep_size);
  cuda::check_device(device);
  std::vector<cuda::CudaPeers::Heap> heaps;
  for (int r = 0; r < ep_size; ++r) heaps.push_back(cuda::make_heap(device, r, heap_bytes));
  std::vector<int> ranks(static_cast<std::size_t>(ep_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<cuda::CudaPeers>(std::move(heaps), heap_bytes, std::move(ranks), true);
}

}  // namespace catamount
