// The stages of the layer, in data-flow order: the index of the project. Files, tasks, counters,
// traces and tests use these names. docs/data_flow.md shows the same list as a picture.
#pragma once

#include <cstdint>

#include "core/macros.h"

namespace catamount {

enum class Stage : std::uint8_t {
  // Forward.
  routing,    // top-k ids of all ranks -> rows per expert, row sources
  dispatch,   // pull token rows from the ranks that own them (backward: pulls x again for wgrad)
  gate_up,    // grouped GEMM x [W_gate; W_up]^T, swiglu in its epilogue (backward: recompute)
  down,       // grouped GEMM h W_down^T
  send_home,  // finished rows to slot (token, k) of the rank that owns the token
  combine,    // out[t] = sum over k, after the last barrier
  // Backward: the transpose of the above.
  combine_grad,   // pull dy rows from the ranks that own them
  down_dgrad,     // dy W_down, swiglu_grad and router_grad in its epilogue
  gate_up_dgrad,  // d(gate, up) [W_gate; W_up] -> dx rows
  down_wgrad,     // dW_down = dy^T (weight * h)
  gate_up_wgrad,  // d[W_gate; W_up] = d(gate, up)^T x
  dispatch_grad,  // dx[t] = sum over k, after the last barrier
};

inline constexpr int kNumStages = static_cast<int>(Stage::dispatch_grad) + 1;

CATAMOUNT_HD constexpr const char* to_string(Stage stage) {
  switch (stage) {
    case Stage::routing:
      return "routing";
    case Stage::dispatch:
      return "dispatch";
    case Stage::gate_up:
      return "gate_up";
    case Stage::down:
      return "down";
    case Stage::send_home:
      return "send_home";
    case Stage::combine:
      return "combine";
    case Stage::combine_grad:
      return "combine_grad";
    case Stage::down_dgrad:
      return "down_dgrad";
    case Stage::gate_up_dgrad:
      return "gate_up_dgrad";
    case Stage::down_wgrad:
      return "down_wgrad";
    case Stage::gate_up_wgrad:
      return "gate_up_wgrad";
    case Stage::dispatch_grad:
      return "dispatch_grad";
  }
  return "unknown";
}

}  // namespace catamount
