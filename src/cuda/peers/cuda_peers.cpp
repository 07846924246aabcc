#include "cuda/peers/cuda_peers.h"

#include <atomic>
#include <new>

#include "cuda/errors.h"

namespace catamount::cuda {

void check_device(int device) {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "looking for GPUs", ErrorCode::not_available);
  if (device < 0 || device >= count) {
    fail(ErrorCode::not_available, "GPU {} does not exist: this machine has {}", device, count);
  }
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  if (properties.major != 9 || properties.minor != 0) {
    fail(ErrorCode::not_available,
         "the CUDA backend needs a Hopper GPU (compute capability 9.0), GPU {} is a {} ({}.{})",
         device, properties.name, properties.major, properties.minor);
  }
}

CudaPeers::Heap make_heap(int device, int rank, std::size_t heap_bytes) {
  const DeviceScope scope(device);
  void* base = nullptr;
  check_cuda(
      cudaMalloc(&base, heap_bytes),
      fmt::format("allocating the {} bytes of rank {}'s heap on GPU {}", heap_bytes, rank, device),
      ErrorCode::not_available);
  DevicePointer<std::byte> owner(static_cast<std::byte*>(base));
  return {device, owner.get(), std::move(owner)};
}

CudaPeers::CudaPeers(std::vector<Heap> heaps, std::size_t heap_bytes, std::vector<int> local,
                     bool shares_addresses)
    : heaps_(std::move(heaps)),
      heap_bytes_(heap_bytes),
      local_(std::move(local)),
      shares_addresses_(shares_addresses) {
  for (const int rank : local_) add_rank(rank);
  for (std::size_t i = 0; i < ranks_.size(); ++i) add_group(i);
  reset();
}

CudaPeers::~CudaPeers() {
  for (const DeviceGroup& group : groups_) {
    // Passes may still be running: the heaps go only when they are done.
    cudaSetDevice(group.device);
    cudaDeviceSynchronize();
    if (group.stream != nullptr) cudaStreamDestroy(group.stream);
    if (group.forked != nullptr) cudaEventDestroy(group.forked);
    if (group.joined != nullptr) cudaEventDestroy(group.joined);
  }
}

void CudaPeers::add_rank(int rank) {
  LocalRank local;
  local.rank = rank;
  local.device = heaps_[static_cast<std::size_t>(rank)].device;
  const DeviceScope scope(local.device);
  local.memory = allocate_device<RankMemory>(sizeof(RankMemory), "allocating a rank's state");
  void* pinned = nullptr;
  check_cuda(
      cudaHostAlloc(&pinned, sizeof(ErrorRecord), cudaHostAllocMapped | cudaHostAllocPortable),
      "allocating a rank's error record");
  local.host_error.reset(new (pinned) ErrorRecord{});
  ranks_.push_back(std::move(local));
}

void CudaPeers::add_group(std::size_t index) {
  const int device = ranks_[index].device;
  if (!groups_.empty() && groups_.back().device == device) {
    ++groups_.back().num_ranks;
    return;
  }
  DeviceGroup& group = groups_.emplace_back();
  group.device = device;
  group.first = index;
  group.num_ranks = 1;
  check_cuda(cudaDeviceGetAttribute(&group.num_sms, cudaDevAttrMultiProcessorCount, device),
             "counting SMs");
  const DeviceScope scope(device);
  check_cuda(load_routing(), "loading the routing kernel");
  check_cuda(load_forward(), "loading the forward kernel");
  check_cuda(cudaEventCreateWithFlags(&group.forked, cudaEventDisableTiming), "making an event");
  check_cuda(cudaEventCreateWithFlags(&group.joined, cudaEventDisableTiming), "making an event");
  if (groups_.size() > 1) {
    check_cuda(cudaStreamCreateWithFlags(&group.stream, cudaStreamNonBlocking), "making a stream");
  }
}

PeerTable CudaPeers::table(int rank) const {
  PeerTable table;
  table.rank = rank;
  table.ep_size = ep_size();
  for (int r = 0; r < ep_size(); ++r) table.base[r] = heaps_[static_cast<std::size_t>(r)].base;
  return table;
}

int CudaPeers::ranks_on(int device) const {
  int ranks = 0;
  for (const DeviceGroup& group : groups_) ranks += group.device == device ? group.num_ranks : 0;
  return ranks;
}

void CudaPeers::reset() {
  for (LocalRank& local : ranks_) {
    const DeviceScope scope(local.device);
    check_cuda(cudaDeviceSynchronize(), "waiting for passes");
    check_cuda(
        cudaMemset(heaps_[static_cast<std::size_t>(local.rank)].base, 0, sizeof(HeapControl)),
        "clearing control words");
    check_cuda(cudaMemset(local.memory.get(), 0, sizeof(RankMemory)), "clearing a rank's state");
    check_cuda(cudaDeviceSynchronize(), "clearing control words");
    *local.host_error = {};
  }
}

void CudaPeers::raise_device_errors() {
  ErrorRecord first{};
  for (LocalRank& local : ranks_) {
    // The device writes `fault` last.
    std::atomic_ref<DeviceFault> fault(local.host_error->fault);
    if (fault.load(std::memory_order_acquire) == DeviceFault::none) continue;
    const ErrorRecord record = *local.host_error;
    if (first.fault == DeviceFault::none || first.fault == DeviceFault::peer_failed) first = record;
    fault.store(DeviceFault::none, std::memory_order_release);
  }
  if (first.fault != DeviceFault::none) raise(first, timeout_s_);
}

}  // namespace catamount::cuda
