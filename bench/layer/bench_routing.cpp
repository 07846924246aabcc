// How long the routing kernel takes, alone: median over launches. One line a case.
#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "cuda/forward_params.h"
#include "model/routing_generators.h"

using namespace catamount;

namespace {

void* upload(const void* host, std::size_t bytes) {
  void* device = nullptr;
  cuda::check_cuda(cudaMalloc(&device, bytes + 16), "cudaMalloc");
  if (host != nullptr) cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice);
  return device;
}

void time_routing(int ranks, std::int64_t tokens, std::int64_t experts, std::int64_t topk,
                  const char* spec) {
  MoeConfig config;
  config.ep_size = ranks;
  config.hidden = 128;
  config.intermediate = 64;
  config.num_experts = experts;
  config.topk = topk;
  config.max_tokens = tokens;
  const auto peers = make_virtual_peers(ranks, heap_bytes(config));
  auto& mine = dynamic_cast<cuda::CudaPeers&>(*peers);
  std::vector<cuda::RoutingParams> params;
  for (int r = 0; r < ranks; ++r) {
    const model::Routing routing =
        model::make_routing(model::parse_routing_spec(spec), tokens, topk, experts, ranks, 1);
    ForwardArgs a;
    a.x = {peers->table(r).base[r], DType::bf16, {tokens, config.hidden}};
    a.topk_idx = {
        upload(routing.topk_idx.data(), routing.topk_idx.size() * 4), DType::i32, {tokens, topk}};
    a.topk_weights = {upload(routing.topk_weights.data(), routing.topk_weights.size() * 4),
                      DType::f32,
                      {tokens, topk}};
    params.push_back(
        cuda::routing_params(mine, mine.ranks()[static_cast<std::size_t>(r)], config, a));
  }
  constexpr int kRepeats = 200;
  std::vector<cudaEvent_t> events(kRepeats + 1);
  for (cudaEvent_t& e : events) cudaEventCreate(&e);
  for (int i = 0; i <= kRepeats; ++i) {
    cudaEventRecord(events[static_cast<std::size_t>(i)]);
    cuda::check_cuda(cuda::launch_routing(params.data(), ranks, 132, nullptr), "launch");
  }
  cuda::check_cuda(cudaDeviceSynchronize(), "routing");
  std::vector<float> us;
  for (std::size_t i = 1; i <= kRepeats; ++i) {
    float ms = 0;
    cudaEventElapsedTime(&ms, events[i - 1], events[i]);
    us.push_back(1000 * ms);
  }
  std::sort(us.begin(), us.end());
  fmt::print("ranks {} tokens {} experts {} topk {} {}: median {:.1f} us, min {:.1f}\n", ranks,
             tokens, experts, topk, spec, us[kRepeats / 2], us[0]);
}

}  // namespace

int main() {
  time_routing(1, 16, 128, 8, "uniform");
  time_routing(1, 1024, 128, 8, "uniform");
  time_routing(1, 8192, 8, 2, "uniform");
  time_routing(1, 16384, 32, 8, "uniform");
  time_routing(1, 16384, 128, 4, "uniform");
  time_routing(1, 16384, 128, 8, "uniform");
  time_routing(1, 32768, 128, 8, "uniform");
  time_routing(1, 16384, 128, 8, "zipf:1.2");
  time_routing(1, 16384, 128, 8, "hot:1");
  for (const int ranks : {2, 4, 8}) time_routing(ranks, 16384 / ranks, 128, 8, "uniform");
}
