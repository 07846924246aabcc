// The one table of tile shapes. M counts rows (row blocks), N columns of the stage's output.
#pragma once

#include <cstdint>

#include "core/macros.h"
#include "core/stage.h"

namespace catamount {

// Rows of an expert are padded to whole row blocks: a tile never holds rows of two experts.
inline constexpr int kBlockRows = 128;

struct TileShape {
  int m;
  int n;
};

// gate_up: 128 columns of gate and the same 128 of up make one 128x256 accumulator, so that swiglu
// stays inside a thread. The same on down_dgrad, whose epilogue holds h, d_gate and d_up.
CATAMOUNT_HD constexpr TileShape tile_shape(Stage stage) {
  switch (stage) {
    case Stage::gate_up:
      return {kBlockRows, 128};
    case Stage::down:
      return {kBlockRows, 256};
    case Stage::down_dgrad:
      return {kBlockRows, 128};
    case Stage::gate_up_dgrad:
      return {kBlockRows, 256};
    case Stage::down_wgrad:
      return {128, 256};
    case Stage::gate_up_wgrad:
      return {128, 256};
    default:
      return {kBlockRows, 1};
  }
}

CATAMOUNT_HD constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
CATAMOUNT_HD constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

}  // namespace catamount
