// The one PeerMemory class of CUDA: heaps, and for each rank driven here what its passes need
// beside its heap. virtual.cpp, devices.cpp and adopted.cpp make them.
#pragma once

#include <memory>
#include <vector>

#include "catamount/moe.h"
#include "catamount/peer_memory.h"
#include "cuda/device/check_cuda.h"
#include "cuda/device/pass_state.h"
#include "cuda/forward/kernel.h"
#include "cuda/routing/kernel.h"

namespace catamount::cuda {

// On a rank's GPU, beside its heap.
struct RankMemory {
  PassState state;
  RoutingState routing;
};

// Parameters of the rank's last pass: a pass with the same tensors needs no new tensor maps, and
// its pointers have been looked at.
struct LastForward {
  bool valid = false;
  RoutingParams routing;
  ForwardParams forward;
};

// A rank that this caller drives.
struct LocalRank {
  int rank = 0;
  int device = 0;
  DevicePointer<RankMemory> memory;
  PinnedPointer<ErrorRecord> host_error;  // the kernels write it through its own address
  LastForward last;
};

// A GPU that runs some of the ranks: consecutive local ranks, in one launch.
struct DeviceGroup {
  int device = 0;
  int num_sms = 0;
  std::size_t first = 0;  // index of its first local rank
  int num_ranks = 0;
  // Beside the first group: its own stream, and the events that order it with the caller's.
  cudaStream_t stream = nullptr;
  cudaEvent_t forked = nullptr, joined = nullptr;
};

class CudaPeers final : public PeerMemory {
 public:
  struct Heap {
    int device;
    std::byte* base;
    DevicePointer<std::byte> owner;  // empty: somebody else's
  };
  // `local`: ranks driven here, ascending; equal devices next to each other.
  CudaPeers(std::vector<Heap> heaps, std::size_t heap_bytes, std::vector<int> local,
            bool shares_addresses);
  ~CudaPeers() override;

  Backend backend() const override { return Backend::cuda; }
  int ep_size() const override { return static_cast<int>(heaps_.size()); }
  std::size_t heap_bytes() const override { return heap_bytes_; }
  std::span<const int> local_ranks() const override { return local_; }
  PeerTable table(int rank) const override;
  void reset() override;

  // Peers read any memory of this rank at its own address, not the heap alone.
  bool shares_addresses() const { return shares_addresses_; }
  std::vector<LocalRank>& ranks() { return ranks_; }
  const std::vector<DeviceGroup>& groups() const { return groups_; }
  int ranks_on(int device) const;
  // Raises the first error that passes have met since the last call; later ones of the same pass
  // are its consequences, and go.
  void raise_device_errors();
  // What raised errors have to say beside the record.
  void note_config(const MoeConfig& config) { timeout_s_ = config.timeout_s; }

 private:
  void add_rank(int rank);
  void add_group(std::size_t index);

  std::vector<Heap> heaps_;
  std::size_t heap_bytes_;
  std::vector<int> local_;
  bool shares_addresses_;
  std::vector<LocalRank> ranks_;
  std::vector<DeviceGroup> groups_;
  double timeout_s_ = 0;
};

// Raises Error(not_available) unless the device exists and is a Hopper GPU.
void check_device(int device);

// A zeroed-control heap on a device.
CudaPeers::Heap make_heap(int device, int rank, std::size_t heap_bytes);

}  // namespace catamount::cuda
