// The oracle: the layer written straight from the formulas at the head of catamount/moe.h, in FP64,
// one token after the other. It knows nothing of ranks, row blocks or schedules, and shares no code
// with the backends: every backend's result is compared with it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "catamount/moe.h"

namespace catamount::oracle {

using Values = std::vector<double>;

// Weights of E experts (or of the shared one: E = 1). Biases may be empty.
struct Experts {
  std::int64_t count = 0;
  std::int64_t width = 0;     // I
  Values gate, up;            // [E, I, H]
  Values down;                // [E, H, I]
  Values bias_gate, bias_up;  // [E, I]
  Values bias_down;           // [E, H]
  // What dgrad multiplies with, where it is not the same (FP8: quantized along the other axis).
  Values gate_dgrad, up_dgrad, down_dgrad;
};

// Where a precision rounds (docs/numerics.md); none: exact.
struct Rounding {
  using Row = std::function<void(std::span<double>)>;
  Row operand;  // rows of x, h, dy, d_gate, d_up and weight * h that a GEMM reads
  Row kept;     // gate and up rows as backward finds them
};

// All ranks' tokens, one after the other.
struct Problem {
  std::int64_t hidden = 0;
  std::int64_t topk = 0;
  std::int64_t tokens = 0;
  Values x;                            // [T, H]
  std::vector<std::int64_t> topk_idx;  // [T, topk]; -1 = masked
  Values topk_weights;                 // [T, topk]
  Experts experts;
  Experts shared;  // count 0: none
  Swiglu swiglu;
  RouterWeight router_weight = RouterWeight::in_combine;
  Rounding rounding;
};

// Gradients, shaped like what they belong to.
struct Gradients {
  Values dx, d_topk_weights;
  Experts experts, shared;  // the *_dgrad members stay empty
};

Values forward(const Problem& problem);
Gradients backward(const Problem& problem, const Values& dy);

}  // namespace catamount::oracle
