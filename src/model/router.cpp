#include "model/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "core/check.h"
#include "core/swiglu.h"
#include "cpu/gemm.h"

namespace catamount::model {
namespace {

// The sum of chosen sigmoids can be 0; DeepSeek's code adds this.
constexpr float kSumFloor = 1e-20F;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The `count` best of `candidates`, best first. NaN ranks behind -Inf; ties go to the lower index.
void keep_best(std::span<const float> value, std::vector<std::int32_t>& candidates,
               std::int64_t count) {
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const float x = value[at(a)], y = value[at(b)];
    const bool x_nan = std::isnan(x), y_nan = std::isnan(y);
    if (x_nan != y_nan) return y_nan;
    if (!x_nan && x != y) return x > y;
    return a < b;
  };
  std::partial_sort(candidates.begin(), candidates.begin() + count, candidates.end(), better);
  candidates.resize(at(count));
}

std::vector<std::int32_t> iota(std::int64_t begin, std::int64_t end) {
  std::vector<std::int32_t> values(at(end - begin));
  std::iota(values.begin(), values.end(), static_cast<std::int32_t>(begin));
  return values;
}

void softmax(std::span<float> values) {
  const float largest = *std::max_element(values.begin(), values.end());
  float sum = 0.0F;
  for (float& value : values) sum += value = std::exp(value - largest);
  for (float& value : values) value /= sum;
}

class TokenRouter {
 public:
  TokenRouter(const RouterWeights& weights, const RouterConfig& config)
      : weights_(weights), config_(config) {}

  // `logits` [E] becomes the scores.
  void route(std::span<float> logits, std::span<std::int32_t> ids, std::span<float> topk_weights) {
    if (config_.score == Score::softmax) softmax(logits);
    if (config_.score == Score::sigmoid) {
      for (float& logit : logits) logit = sigmoid(logit).value;
    }
    choice_.assign(logits.begin(), logits.end());
    for (std::size_t e = 0; e < weights_.selection_bias.size(); ++e) {
      choice_[e] += weights_.selection_bias[e];
    }
    std::vector<std::int32_t> chosen = candidates();
    keep_best(choice_, chosen, config_.topk);
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      ids[k] = chosen[k];
      topk_weights[k] = logits[at(chosen[k])];
    }
    if (config_.score == Score::softmax_of_topk) softmax(topk_weights);
    const float sum = std::accumulate(topk_weights.begin(), topk_weights.end(), 0.0F);
    for (float& weight : topk_weights) {
      if (config_.normalize) weight /= sum + kSumFloor;
      weight *= config_.routed_scaling;
    }
  }

 private:
  std::vector<std::int32_t> candidates() const {
    if (config_.n_group == 1) return iota(0, weights_.num_experts);
    const std::int64_t group_size = weights_.num_experts / config_.n_group;
    std::vector<float> group_score;
    for (std::int64_t g = 0; g < config_.n_group; ++g) {
      auto members = iota(g * group_size, (g + 1) * group_size);
      keep_best(choice_, members, std::min<std::int64_t>(2, group_size));
      float score = 0.0F;
      for (const std::int32_t e : members) score += choice_[at(e)];
      group_score.push_back(score);
    }
    auto groups = iota(0, config_.n_group);
    keep_best(group_score, groups, config_.topk_group);
    std::vector<std::int32_t> experts;
    for (const std::int32_t g : groups) {
      const auto members = iota(g * group_size, (g + 1) * group_size);
      experts.insert(experts.end(), members.begin(), members.end());
    }
    return experts;
  }

  const RouterWeights& weights_;
  const RouterConfig& config_;
  std::vector<float> choice_;
};

void check_sizes(const RouterWeights& w) {
  const auto experts = at(w.num_experts);
  check(w.weight.size() == experts * at(w.hidden),
        "router weight must have [{}, {}] values, got {}", w.num_experts, w.hidden,
        w.weight.size());
  check(w.bias.empty() || w.bias.size() == experts, "router bias must have {} values, got {}",
        experts, w.bias.size());
  check(w.selection_bias.empty() || w.selection_bias.size() == experts,
        "selection bias must have {} values, got {}", experts, w.selection_bias.size());
}

}  // namespace

void validate(const RouterConfig& config, std::int64_t num_experts) {
  check(config.topk >= 1 && config.topk <= num_experts, "topk must be in [1, {}], got {}",
        num_experts, config.topk);
  check(config.n_group >= 1 && num_experts % config.n_group == 0,
        "n_group must divide the {} experts, got {}", num_experts, config.n_group);
  check(config.topk_group >= 1 && config.topk_group <= config.n_group,
        "topk_group must be in [1, {}], got {}", config.n_group, config.topk_group);
  const std::int64_t eligible = num_experts / config.n_group * config.topk_group;
  check(config.topk <= eligible, "topk is {}, but {} groups have only {} experts", config.topk,
        config.topk_group, eligible);
}

Routing route_logits(const std::vector<float>& logits, const RouterWeights& weights,
                     const RouterConfig& config) {
  validate(config, weights.num_experts);
  check(logits.size() % at(weights.num_experts) == 0, "logits must be [T, {}], got {} values",
        weights.num_experts, logits.size());
  const auto experts = at(weights.num_experts), topk = at(config.topk);
  const std::size_t tokens = logits.size() / experts;
  Routing routing{std::vector<std::int32_t>(tokens * topk), std::vector<float>(tokens * topk)};
  TokenRouter router(weights, config);
  std::vector<float> scores = logits;
  for (std::size_t t = 0; t < tokens; ++t) {
    router.route(std::span(scores).subspan(t * experts, experts),
                 std::span(routing.topk_idx).subspan(t * topk, topk),
                 std::span(routing.topk_weights).subspan(t * topk, topk));
  }
  return routing;
}

Routing route(const ConstTensorView& hidden, const RouterWeights& weights,
              const RouterConfig& config) {
  check_sizes(weights);
  check((hidden.dtype == DType::bf16 || hidden.dtype == DType::f32) && hidden.num_dims == 2 &&
            hidden.shape[1] == weights.hidden,
        "hidden must be bf16 or f32 [T, {}], got {}", weights.hidden, to_string(hidden));
  const std::int64_t tokens = hidden.shape[0], experts = weights.num_experts, h = weights.hidden;
  std::vector<float> logits(at(tokens * experts));
  cpu::gemm(cpu::GemmForm::fprop, {tokens, experts, h}, {hidden.data, hidden.dtype, h},
            {weights.weight.data(), DType::f32, h}, {logits.data(), experts});
  if (!weights.bias.empty()) {
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] += weights.bias[i % at(experts)];
  }
  return route_logits(logits, weights, config);
}

}  // namespace catamount::model
