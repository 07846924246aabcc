// Ranks that are GPUs of one process: with peer access, a pointer means the same on all of them.
#include <numeric>

#include "core/validate.h"
#include "cuda/peers/cuda_peers.h"

namespace catamount {
namespace {

void enable_access(int from, int to) {
  int possible = 0;
  cuda::check_cuda(cudaDeviceCanAccessPeer(&possible, from, to), "cudaDeviceCanAccessPeer");
  if (possible == 0) {
    fail(ErrorCode::not_available, "GPU {} cannot read the memory of GPU {} (no peer access)", from,
         to);
  }
  const cuda::DeviceScope scope(from);
  const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    static_cast<void>(cudaGetLastError());
    return;
  }
  cuda::check_cuda(error, fmt::format("enabling GPU {}'s access to GPU {}", from, to),
                   ErrorCode::not_available);
}

}  // namespace

std::unique_ptr<PeerMemory> make_device_peers(std::span<const int> devices,
                                              std::size_t heap_bytes) {
  validate_heaps(static_cast<int>(devices.size()), heap_bytes);
  for (const int device : devices) cuda::check_device(device);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (std::size_t j = 0; j < devices.size(); ++j) {
      if (i == j) continue;
      check(devices[i] != devices[j],
            "devices must differ, but ranks {} and {} are both GPU {} (virtual peers share a GPU)",
            i, j, devices[i]);
      enable_access(devices[i], devices[j]);
    }
  }
  std::vector<cuda::CudaPeers::Heap> heaps;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    heaps.push_back(cuda::make_heap(devices[r], static_cast<int>(r), heap_bytes));
  }
  std::vector<int> ranks(devices.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<cuda::CudaPeers>(std::move(heaps), heap_bytes, std::move(ranks), true);
}

}  // namespace catamount
