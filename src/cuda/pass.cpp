// A pass on the CUDA backend, from the host: two launches a GPU, routing and the fused kernel, on
// the caller's stream. Nothing here waits for the device or reads from it, so a pass can be
// captured in a CUDA graph; what the device finds lies in host memory when the pass is done.
#include "cuda/pass.h"

#include <cstring>

#include "core/check.h"
#include "cuda/forward_params.h"

namespace catamount::cuda {
namespace {

CudaPeers& cuda_peers(PeerMemory& peers) {
  auto* mine = dynamic_cast<CudaPeers*>(&peers);
  check(mine != nullptr,
        "CUDA peer memory must come from make_virtual_peers, make_device_peers or "
        "make_adopted_peers");
  return *mine;
}

bool same_but_maps(const ForwardParams& a, const ForwardParams& b) {
  constexpr std::size_t kBegin = offsetof(ForwardParams, peers);
  const auto bytes = [](const ForwardParams& p) {
    return reinterpret_cast<const std::byte*>(&p) + kBegin;
  };
  return std::memcmp(bytes(a), bytes(b), sizeof(ForwardParams) - kBegin) == 0;
}

// The parameters of this pass, in local.last. Pointers that the last pass had too are known to be
// good, and so are its tensor maps.
void prepare(const CudaPeers& peers, LocalRank& local, const MoeConfig& config,
             const ForwardArgs& args) {
  LastForward& last = local.last;
  const RoutingParams routing = routing_params(peers, local, config, args);
  const ForwardParams forward = forward_params(peers, local, config, args);
  if (last.valid && std::memcmp(&last.routing, &routing, sizeof(routing)) == 0 &&
      same_but_maps(last.forward, forward)) {
    return;
  }
  last.valid = false;
  check_device_tensors(local.rank, args);
  std::memcpy(static_cast<void*>(&last.routing), &routing, sizeof(routing));
  std::memcpy(static_cast<void*>(&last.forward), &forward, sizeof(forward));
  check_cuda(make_forward_maps(&last.forward), "describing tensors to the copy engine");
  last.valid = true;
}

void check_sms(const DeviceGroup& group, const MoeConfig& config) {
  constexpr int kFewest = 2;  // the fused kernel's cluster
  const int each = (group.num_sms - config.reserve_sms) / group.num_ranks;
  const int comm = (config.comm_sms + kFewest - 1) / kFewest * kFewest;
  check(each / kFewest * kFewest >= comm + kFewest,
        "GPU {} has {} SMs for {} ranks: too few with reserve_sms {} and comm_sms {}", group.device,
        group.num_sms, group.num_ranks, config.reserve_sms, config.comm_sms);
}

void launch_group(CudaPeers& peers, const DeviceGroup& group, const MoeConfig& config,
                  std::span<const ForwardArgs> args, cudaStream_t stream) {
  const DeviceScope scope(group.device);
  std::vector<RoutingParams> routing;
  std::vector<ForwardParams> forward;
  for (std::size_t i = group.first; i < group.first + static_cast<std::size_t>(group.num_ranks);
       ++i) {
    const LocalRank& local = peers.ranks()[i];
    copy_published(peers, local, config, args[i], stream);
    routing.push_back(local.last.routing);
    forward.push_back(local.last.forward);
  }
  check_cuda(
      launch_routing(routing.data(), group.num_ranks, group.num_sms - config.reserve_sms, stream),
      "launching the routing kernel");
  check_cuda(launch_forward(forward.data(), group.num_ranks,
                            {group.num_sms, config.reserve_sms, config.comm_sms}, stream),
             "launching the forward kernel");
}

// The other GPUs' streams continue where the caller's is now.
void fork(const std::vector<DeviceGroup>& groups, cudaStream_t stream) {
  if (groups.size() == 1) return;
  const DeviceScope scope(groups[0].device);
  check_cuda(cudaEventRecord(groups[0].forked, stream), "recording an event");
  for (const DeviceGroup& group : groups) {
    if (group.stream == nullptr) continue;
    check_cuda(cudaStreamWaitEvent(group.stream, groups[0].forked), "waiting for an event");
  }
}

// The caller's stream continues when all of them are done.
void join(const std::vector<DeviceGroup>& groups, cudaStream_t stream) {
  for (const DeviceGroup& group : groups) {
    if (group.stream == nullptr) continue;
    const DeviceScope scope(group.device);
    check_cuda(cudaEventRecord(group.joined, group.stream), "recording an event");
    check_cuda(cudaStreamWaitEvent(stream, group.joined), "waiting for an event");
  }
}

}  // namespace

void forward(PeerMemory& peers, const MoeConfig& config, std::span<const ForwardArgs> ranks,
             Stream stream) {
  CudaPeers& mine = cuda_peers(peers);
  if (config.precision != Precision::bf16) {
    fail(ErrorCode::not_available, "the FP8 precisions on CUDA are not in this version");
  }
  mine.raise_device_errors();
  mine.note_config(config);
  for (const DeviceGroup& group : mine.groups()) check_sms(group, config);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const DeviceScope scope(mine.ranks()[i].device);
    prepare(mine, mine.ranks()[i], config, ranks[i]);
    if (ranks[i].stats != nullptr) *ranks[i].stats = {};
  }
  const auto caller = static_cast<cudaStream_t>(stream.handle);
  fork(mine.groups(), caller);
  for (const DeviceGroup& group : mine.groups()) {
    launch_group(mine, group, config, ranks, group.stream != nullptr ? group.stream : caller);
  }
  join(mine.groups(), caller);
}

void backward(PeerMemory&, const MoeConfig&, std::span<const BackwardArgs>, Stream) {
  fail(ErrorCode::not_available, "backward on CUDA is not in this version");
}

void synchronize(PeerMemory& peers, Stream stream) {
  CudaPeers& mine = cuda_peers(peers);
  const DeviceScope scope(mine.groups()[0].device);
  check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.handle)),
             "waiting for the passes of a stream");
  mine.raise_device_errors();
}

}  // namespace catamount::cuda
