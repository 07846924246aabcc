// All tensors of a timed layer on the GPU: random weights and tokens, generated routing.
#pragma once

#include <cmath>
#include <vector>

#include "cases.h"
#include "catamount/peer_memory.h"
#include "cuda/device/check_cuda.h"
#include "model/routing_generators.h"
#include "random_fill.h"

namespace catamount::bench {

class DeviceTensors {
 public:
  explicit DeviceTensors(const BenchCase& c) : c_(c) {
    const model::RoutingSpec spec = model::parse_routing_spec(c.routing);
    for (int r = 0; r < c.config.ep_size; ++r) args_.push_back(make_rank(spec, r));
    cuda::check_cuda(cudaDeviceSynchronize(), "filling tensors");
  }

  const std::vector<ForwardArgs>& args() const { return args_; }

  void* allocate(std::size_t bytes) {
    owned_.push_back(cuda::allocate_device<std::byte>(bytes + 16, "allocating a tensor"));
    return owned_.back().get();
  }
  // [dims...] BF16, scaled so that sums over `fan_in` are of order 1.
  TensorView random(std::initializer_list<std::int64_t> dims, std::int64_t fan_in) {
    TensorView t{nullptr, DType::bf16, dims};
    t.data = allocate(t.bytes());
    const auto stddev = static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)));
    cuda::check_cuda(fill_normal_bf16(t.data, t.size(), stddev, ++seed_), "filling a tensor");
    return t;
  }

 private:
  template <class T>
  void* upload(const std::vector<T>& host) {
    void* device = allocate(host.size() * sizeof(T));
    cuda::check_cuda(
        cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
        "uploading a tensor");
    return device;
  }

  ForwardArgs make_rank(const model::RoutingSpec& spec, int rank) {
    const MoeConfig& c = c_.config;
    const std::int64_t t = c.max_tokens;
    const std::int64_t e = c.num_local_experts();
    const std::int64_t i = c.intermediate;
    const std::int64_t h = c.hidden;
    const model::Routing routing = model::make_routing(spec, t, c.topk, c.num_experts, c.ep_size,
                                                       static_cast<std::uint64_t>(rank) + 1);
    ForwardArgs a;
    a.x = random({t, h}, 1);
    a.topk_idx = {upload(routing.topk_idx), DType::i32, {t, c.topk}};
    a.topk_weights = {upload(routing.topk_weights), DType::f32, {t, c.topk}};
    a.weights.gate_up = random({e, 2 * i, h}, h);
    a.weights.down = random({e, h, i}, i);
    if (c_.biases) {
      a.weights.bias_gate_up = random({e, 2 * i}, 4);
      a.weights.bias_down = random({e, h}, 4);
    }
    a.out = random({t, h}, 1);
    if (c_.save) a.saved = {allocate(saved_bytes(c)), saved_bytes(c)};
    return a;
  }

  const BenchCase& c_;
  std::uint32_t seed_ = 0;
  std::vector<cuda::DevicePointer<std::byte>> owned_;
  std::vector<ForwardArgs> args_;
};

}  // namespace catamount::bench
