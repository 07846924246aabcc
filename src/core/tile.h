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

// Who computes: each has the tiles that suit it.
//
//   cpu        128 columns of gate and the same 128 of up, 256 elsewhere: scale spans (128) stay
//   whole sm90_bf16  a warpgroup's accumulator is 128 x 192: 96 columns of gate and the same 96 of
//   up, so
//              that swiglu stays inside a thread
enum class TileSet : std::uint8_t { cpu, sm90_bf16 };

CATAMOUNT_HD constexpr TileShape tile_shape(TileSet set, Stage stage) {
  const int wide = set == TileSet::cpu ? 256 : 192;
  switch (stage) {
    case Stage::gate_up:
      return {kBlockRows, wide / 2};
    case Stage::down_dgrad:  // its epilogue holds dh, and makes h, d_gate and d_up of it
      return {kBlockRows, 128};
    case Stage::down:
    case Stage::gate_up_dgrad:
      return {kBlockRows, wide};
    case Stage::down_wgrad:
    case Stage::gate_up_wgrad:
      return {128, wide};
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
