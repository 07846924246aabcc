// The MoE layers of real models, as numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "catamount/moe.h"
#include "model/router.h"

namespace catamount::model {

struct Preset {
  std::string name;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t num_experts = 0;
  std::int64_t shared_intermediate = 0;  // 0 = no shared expert
  Swiglu swiglu = {};
  bool expert_biases = false;
  bool router_bias = false;
  bool selection_bias = false;
  RouterConfig router;  // has topk
};

std::span<const Preset> presets();

// By name, whatever the case; Error(invalid_argument) lists the names.
const Preset& find_preset(std::string_view name);

// A smaller layer of the same kind, 1 / factor of hidden, intermediate, shared_intermediate and
// num_experts each: weights shrink by factor^3. The widths stay multiples of 32, and at least 32.
// num_experts stays a multiple of 8 where it was one (1, 2, 4, 8 ranks still share it evenly), and
// large enough for topk and the router's groups. Everything else is kept.
Preset scaled(const Preset& preset, std::int64_t factor);

// The preset's part of a MoeConfig; ranks, tokens and precision are the caller's.
MoeConfig moe_config(const Preset& preset);

}  // namespace catamount::model
