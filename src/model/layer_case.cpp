#include "model/layer_case.h"

#include <algorithm>
#include "core/check.h"
#include "core/layout.h"
#include "model/random.h"

namespace catamount::model {
namespace {

using Dims = std::initializer_list<std::int64_t>;

template <class T>
T* part(std::vector<T>& all, std::int64_t first) {
  return all.empty() ? nullptr : all.data() + first;
}

GradView grad_view(RankTensors::Grad& grad, const LayerCaseOptions& options, Dims dims) {
  return {{grad.bytes.data(), options.grad_dtype, dims}, options.accumulate};
}

std::vector<float> random_floats(Random& random, std::int64_t n, double stddev) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = static_cast<float>(stddev * random.normal());
  return values;
}

void fill_nan_bytes(std::byte* data, std::size_t bytes) {
  std::fill_n(data, bytes, std::byte{0xff});
}
template <class T>
void fill_nan_bytes(std::vector<T>& values) {
  fill_nan_bytes(reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T));
}

}  // namespace

LayerCase::LayerCase(LayerCaseOptions options) : options_(std::move(options)) {
  MoeConfig& c = options_.config;
  check(static_cast<int>(options_.tokens.size()) == c.ep_size,
        "expected one number of tokens for each of {} ranks, got {}", c.ep_size,
        options_.tokens.size());
  c.max_tokens = *std::max_element(options_.tokens.begin(), options_.tokens.end());
  validate(c);
  Random random(options_.seed);
  // Scaled so that pre-activations and outputs are of order 1.
  const auto weight = [&](std::int64_t n, std::int64_t fan_in) {
    if (!options_.random_weights) return std::vector<Bf16>(static_cast<std::size_t>(n));
    return random.normal_bf16(n, 1.0 / std::sqrt(static_cast<double>(fan_in)));
  };
  const std::int64_t s = c.shared_intermediate;
  weights_.gate_up = weight(c.num_experts * 2 * c.intermediate * c.hidden, c.hidden);
  weights_.down = weight(c.num_experts * c.hidden * c.intermediate, c.intermediate);
  if (options_.biases) {
    weights_.bias_gate_up = random_floats(random, c.num_experts * 2 * c.intermediate, 0.5);
    weights_.bias_down = random_floats(random, c.num_experts * c.hidden, 0.5);
  }
  if (s > 0) {
    weights_.shared_gate_up = weight(2 * s * c.hidden, c.hidden);
    weights_.shared_down = weight(c.hidden * s, s);
  }
  for (int r = 0; r < c.ep_size; ++r) {
    RankTensors& rank = ranks_.emplace_back();
    rank.tokens = options_.tokens[static_cast<std::size_t>(r)];
    rank.x = random.normal_bf16(rank.tokens * c.hidden, 1.0);
    rank.dy = random.normal_bf16(rank.tokens * c.hidden, 1.0);
    rank.out.resize(rank.x.size());
    rank.dx.resize(rank.x.size());
    rank.d_topk_weights.resize(static_cast<std::size_t>(rank.tokens * c.topk));
    if (options_.save) rank.saved.resize(saved_bytes(c));
    set_routing(r, make_routing(options_.routing, rank.tokens, c.topk, c.num_experts, c.ep_size,
                                random.bits()));
  }
  split_weights();
  poison_outputs();
}

void LayerCase::set_weights(LayerWeights weights) {
  check(weights.gate_up.size() == weights_.gate_up.size() &&
            weights.down.size() == weights_.down.size() &&
            weights.bias_gate_up.size() == weights_.bias_gate_up.size() &&
            weights.shared_gate_up.size() == weights_.shared_gate_up.size(),
        "the weights do not have the shapes of the case: gate_up {} elements, got {}",
        weights_.gate_up.size(), weights.gate_up.size());
  weights_ = std::move(weights);
  split_weights();
}

void LayerCase::set_routing(int rank, Routing routing) {
  RankTensors& r = ranks_[static_cast<std::size_t>(rank)];
  r.topk_idx = std::move(routing.topk_idx);
  r.topk_weights = std::move(routing.topk_weights);
  r.topk_idx_64.assign(r.topk_idx.begin(), r.topk_idx.end());
}

void LayerCase::set_hidden(int rank, std::vector<Bf16> x) {
  RankTensors& r = ranks_[static_cast<std::size_t>(rank)];
  check(x.size() == r.x.size(), "expected {} values, got {}", r.x.size(), x.size());
  r.x = std::move(x);
}

void LayerCase::split_weights() {
  if (options_.fused_gate_up) return;
  const MoeConfig& c = options_.config;
  const std::int64_t half = c.intermediate * c.hidden;
  const std::int64_t experts = c.num_local_experts();
  for (int r = 0; r < c.ep_size; ++r) {
    RankTensors& rank = ranks_[static_cast<std::size_t>(r)];
    for (auto* v : {&rank.gate, &rank.up}) v->clear();
    for (auto* v : {&rank.bias_gate, &rank.bias_up}) v->clear();
    for (std::int64_t e = r * experts; e < (r + 1) * experts; ++e) {
      const Bf16* gate = weights_.gate_up.data() + 2 * e * half;
      rank.gate.insert(rank.gate.end(), gate, gate + half);
      rank.up.insert(rank.up.end(), gate + half, gate + 2 * half);
      if (!options_.biases) continue;
      const float* bias = weights_.bias_gate_up.data() + 2 * e * c.intermediate;
      rank.bias_gate.insert(rank.bias_gate.end(), bias, bias + c.intermediate);
      rank.bias_up.insert(rank.bias_up.end(), bias + c.intermediate, bias + 2 * c.intermediate);
    }
  }
}

void LayerCase::poison_outputs() {
  const MoeConfig& c = options_.config;
  const std::int64_t e = c.num_local_experts();
  const std::int64_t i = c.intermediate;
  const std::int64_t h = c.hidden;
  const std::int64_t s = c.shared_intermediate;
  const std::int64_t biases = options_.biases ? 1 : 0;
  const std::int64_t fused = options_.fused_gate_up ? 1 : 0;
  Random random(options_.seed + 1);
  const auto reset = [&](RankTensors::Grad& grad, std::int64_t n) {
    grad.bytes.resize(static_cast<std::size_t>(n) * dtype_bytes(options_.grad_dtype));
    fill_nan_bytes(grad.bytes);
    grad.before.clear();
    if (!options_.accumulate) return;
    for (std::int64_t k = 0; k < n; ++k) {
      const Bf16 value = to_bf16(static_cast<float>(random.normal()));
      grad.before.push_back(static_cast<double>(to_float(value)));
      if (options_.grad_dtype == DType::bf16) {
        reinterpret_cast<Bf16*>(grad.bytes.data())[k] = value;
      } else {
        reinterpret_cast<float*>(grad.bytes.data())[k] = to_float(value);
      }
    }
  };
  for (RankTensors& rank : ranks_) {
    fill_nan_bytes(rank.out);
    fill_nan_bytes(rank.dx);
    fill_nan_bytes(rank.d_topk_weights);
    reset(rank.d_gate_up, fused * e * 2 * i * h);
    reset(rank.d_gate, (1 - fused) * e * i * h);
    reset(rank.d_up, (1 - fused) * e * i * h);
    reset(rank.d_down, e * h * i);
    reset(rank.d_bias_gate_up, biases * fused * e * 2 * i);
    reset(rank.d_bias_gate, biases * (1 - fused) * e * i);
    reset(rank.d_bias_up, biases * (1 - fused) * e * i);
    reset(rank.d_bias_down, biases * e * h);
    reset(rank.d_shared_gate_up, 2 * s * h);
    reset(rank.d_shared_down, h * s);
  }
}

void LayerCase::poison(PeerMemory& peers) {
  poison_outputs();
  for (RankTensors& rank : ranks_) fill_nan_bytes(rank.saved);
  if (peers.backend() != Backend::cpu) return;
  for (const int r : peers.local_ranks()) {
    fill_nan_bytes(peers.table(r).base[r] + sizeof(HeapControl),
                   peers.heap_bytes() - sizeof(HeapControl));
  }
}

ExpertWeights LayerCase::weight_views(RankTensors& rank, std::int64_t first) {
  const MoeConfig& c = options_.config;
  const std::int64_t e = c.num_local_experts();
  const std::int64_t i = c.intermediate;
  const std::int64_t h = c.hidden;
  const std::int64_t s = c.shared_intermediate;
  ExpertWeights w;
  if (options_.fused_gate_up) {
    w.gate_up = {part(weights_.gate_up, first * 2 * i * h), DType::bf16, {e, 2 * i, h}};
  } else {
    w.gate = {rank.gate.data(), DType::bf16, {e, i, h}};
    w.up = {rank.up.data(), DType::bf16, {e, i, h}};
  }
  w.down = {part(weights_.down, first * h * i), DType::bf16, {e, h, i}};
  if (options_.biases) {
    if (options_.fused_gate_up) {
      w.bias_gate_up = {part(weights_.bias_gate_up, first * 2 * i), DType::f32, {e, 2 * i}};
    } else {
      w.bias_gate = {rank.bias_gate.data(), DType::f32, {e, i}};
      w.bias_up = {rank.bias_up.data(), DType::f32, {e, i}};
    }
    w.bias_down = {part(weights_.bias_down, first * h), DType::f32, {e, h}};
  }
  if (s > 0) {
    w.shared_gate_up = {weights_.shared_gate_up.data(), DType::bf16, {2 * s, h}};
    w.shared_down = {weights_.shared_down.data(), DType::bf16, {h, s}};
  }
  return w;
}

ExpertGrads LayerCase::grad_views(RankTensors& rank) {
  const MoeConfig& c = options_.config;
  const std::int64_t e = c.num_local_experts();
  const std::int64_t i = c.intermediate;
  const std::int64_t h = c.hidden;
  const std::int64_t s = c.shared_intermediate;
  const auto view = [&](RankTensors::Grad& grad, Dims dims) {
    return grad_view(grad, options_, dims);
  };
  ExpertGrads g;
  g.down = view(rank.d_down, {e, h, i});
  if (options_.fused_gate_up) {
    g.gate_up = view(rank.d_gate_up, {e, 2 * i, h});
  } else {
    g.gate = view(rank.d_gate, {e, i, h});
    g.up = view(rank.d_up, {e, i, h});
  }
  if (options_.biases) {
    g.bias_down = view(rank.d_bias_down, {e, h});
    if (options_.fused_gate_up) {
      g.bias_gate_up = view(rank.d_bias_gate_up, {e, 2 * i});
    } else {
      g.bias_gate = view(rank.d_bias_gate, {e, i});
      g.bias_up = view(rank.d_bias_up, {e, i});
    }
  }
  if (s > 0) {
    g.shared_gate_up = view(rank.d_shared_gate_up, {2 * s, h});
    g.shared_down = view(rank.d_shared_down, {h, s});
  }
  return g;
}

std::vector<ForwardArgs> LayerCase::forward_args() {
  const MoeConfig& c = options_.config;
  std::vector<ForwardArgs> args;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    RankTensors& rank = ranks_[r];
    const std::int64_t t = rank.tokens;
    ForwardArgs a;
    a.x = {rank.x.data(), DType::bf16, {t, c.hidden}};
    a.topk_idx = {rank.topk_idx.data(), DType::i32, {t, c.topk}};
    if (options_.idx_64bit) a.topk_idx = {rank.topk_idx_64.data(), DType::i64, {t, c.topk}};
    a.topk_weights = {rank.topk_weights.data(), DType::f32, {t, c.topk}};
    a.weights = weight_views(rank, static_cast<std::int64_t>(r) * c.num_local_experts());
    a.out = {rank.out.data(), DType::bf16, {t, c.hidden}};
    if (options_.save) a.saved = {rank.saved.data(), rank.saved.size()};
    a.stats = &rank.forward_stats;
    args.push_back(a);
  }
  return args;
}

std::vector<BackwardArgs> LayerCase::backward_args() {
  const MoeConfig& c = options_.config;
  const std::vector<ForwardArgs> forward = forward_args();
  std::vector<BackwardArgs> args;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    RankTensors& rank = ranks_[r];
    BackwardArgs a;
    a.x = forward[r].x;
    a.topk_idx = forward[r].topk_idx;
    a.topk_weights = forward[r].topk_weights;
    a.weights = forward[r].weights;
    a.saved = forward[r].saved;
    a.dy = {rank.dy.data(), DType::bf16, {rank.tokens, c.hidden}};
    a.dx = {rank.dx.data(), DType::bf16, {rank.tokens, c.hidden}};
    a.d_topk_weights = {rank.d_topk_weights.data(), DType::f32, {rank.tokens, c.topk}};
    a.grads = grad_views(rank);
    a.stats = &rank.backward_stats;
    args.push_back(a);
  }
  return args;
}

void LayerCase::run_forward(PeerMemory& peers) {
  catamount::forward(peers, options_.config, forward_args());
}

void LayerCase::run_backward(PeerMemory& peers) {
  catamount::backward(peers, options_.config, backward_args());
}

}  // namespace catamount::model
