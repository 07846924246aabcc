// The router of the models we know: logits = hidden W^T + bias, scores, the top k experts of each
// token and their weights.
#pragma once

#include <cstdint>
#include <vector>

#include "catamount/tensor.h"

namespace catamount::model {

enum class Score : std::uint8_t {
  softmax,          // over all experts, then top-k (Mixtral, Qwen3)
  sigmoid,          // each expert by itself (DeepSeek-V3, Kimi-K2)
  softmax_of_topk,  // top-k of the logits, then softmax over the chosen (gpt-oss)
};

struct RouterConfig {
  std::int64_t topk = 1;
  Score score = Score::softmax;
  bool normalize = false;       // the chosen weights are divided by their sum
  float routed_scaling = 1.0F;  // and then multiplied by this
  // Group-limited top-k: the experts form n_group groups of neighbours, and only those in a token's
  // topk_group best groups can be chosen. A group is as good as the sum of its two best experts.
  std::int64_t n_group = 1;
  std::int64_t topk_group = 1;
};

struct RouterWeights {
  std::int64_t num_experts = 0;
  std::int64_t hidden = 0;
  std::vector<float> weight;          // [E, H]
  std::vector<float> bias;            // [E], added to the logits; empty = none
  std::vector<float> selection_bias;  // [E], added to scores for the choice alone; empty = none
};

struct Routing {
  std::vector<std::int32_t> topk_idx;  // [T, topk], best first
  std::vector<float> topk_weights;     // [T, topk]
};

// Raises Error(invalid_argument) when the router cannot choose topk of num_experts experts.
void validate(const RouterConfig& config, std::int64_t num_experts);

// `hidden` is BF16 or F32 [T, H]. Ties go to the lower expert. A NaN score loses against every
// number, so a token always gets topk different experts; its weights show the NaN.
Routing route(const ConstTensorView& hidden, const RouterWeights& weights,
              const RouterConfig& config);

// The choice alone, from logits [T, num_experts].
Routing route_logits(const std::vector<float>& logits, const RouterWeights& weights,
                     const RouterConfig& config);

}  // namespace catamount::model
