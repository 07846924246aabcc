// One MoE layer of a Hugging Face checkpoint, for all experts, in the library's own form.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "catamount/moe.h"
#include "core/dtype.h"
#include "model/router.h"

namespace catamount::model {

struct MoeLayerWeights {
  std::string model_type;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t num_experts = 0;
  std::int64_t shared_intermediate = 0;  // 0 = no shared expert
  Swiglu swiglu;
  RouterConfig router_config;  // has topk
  RouterWeights router;

  std::vector<Bf16> gate_up;         // [E, 2I, H]: gate rows, then up rows
  std::vector<Bf16> down;            // [E, H, I]
  std::vector<float> bias_gate_up;   // [E, 2I]; empty = no biases
  std::vector<float> bias_down;      // [E, H]
  std::vector<Bf16> shared_gate_up;  // [2 I_shared, H]
  std::vector<Bf16> shared_down;     // [H, I_shared]

  // The layer's part of a MoeConfig; ranks, tokens and precision are the caller's.
  MoeConfig moe_config() const;
  // Views of the experts that `rank` of `ep_size` owns.
  ExpertWeights expert_weights(int rank, int ep_size) const;
};

// Reads `dir`/config.json and the layer's tensors (model.safetensors, or shards with an index):
// only the shards that hold them are touched. FP8 and MXFP4 weights become BF16. Whatever is
// missing or does not fit is an Error(io), raised before memory for the weights is allocated.
MoeLayerWeights load_moe_layer(const std::filesystem::path& dir, std::int64_t layer);

}  // namespace catamount::model
