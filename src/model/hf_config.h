// What a Hugging Face config.json says about the MoE layers of a model.
//
//   model_type             architecture
//   mixtral                softmax router; experts named w1 (gate), w3 (up), w2 (down)
//   qwen3_moe              softmax router
//   deepseek_v3, kimi_k2   sigmoid router with selection bias and groups; shared experts; some
//   layers
//                          dense; weights may be FP8 blocks
//   gpt_oss                softmax over the chosen; biases everywhere; weights may be MXFP4
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "catamount/moe.h"
#include "io/convert.h"
#include "model/router.h"

namespace catamount::model {

enum class Family : std::uint8_t { mixtral, qwen3_moe, deepseek_v3, gpt_oss };

struct HfConfig {
  std::string model_type;
  Family family = Family::mixtral;
  std::int64_t num_layers = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t num_experts = 0;
  std::int64_t shared_intermediate = 0;
  Swiglu swiglu;
  RouterConfig router;
  io::BlockSize fp8_block;

  // Which layers are MoE layers: from first_moe_layer, those where (layer + 1) % moe_step == 0,
  // except the listed ones.
  std::int64_t first_moe_layer = 0;
  std::int64_t moe_step = 1;
  std::vector<std::int64_t> dense_layers;
};

// Error(io) on a model_type that is not in the table, on missing or impossible numbers, and on
// features that would change the layer's result and are not known here.
HfConfig parse_hf_config(std::string_view json_text, const std::string& file = "config.json");

// Error(io) unless `layer` exists and is a MoE layer.
void check_moe_layer(const HfConfig& config, std::int64_t layer, const std::string& file);

}  // namespace catamount::model
