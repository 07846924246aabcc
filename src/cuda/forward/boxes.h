// Tiles and boxes of the forward kernel, for the host's tensor maps and the device's copies.
#pragma once

#include "core/tile.h"

namespace catamount::cuda {

inline constexpr int kBlockK = 64;  // elements of K in a stage: one 128-byte swizzle row
inline constexpr int kTileRows = kBlockRows;
inline constexpr int kTileColumns = tile_shape(TileSet::sm90_bf16, Stage::down).n;
inline constexpr int kGateColumns = tile_shape(TileSet::sm90_bf16, Stage::gate_up).n;
static_assert(kTileColumns == 2 * kGateColumns);  // gate's, then the same columns of up

// Staging. h and pre-activations: boxes of 32 columns, 128 rows, 64-byte swizzle. y: boxes of 64
// columns, 64 rows, 128-byte swizzle.
inline constexpr int kBoxBytes = 8192;
inline constexpr int kBoxColumnsH = 32;
inline constexpr int kBoxColumnsY = 64;
inline constexpr int kHalfRows = 64;

}  // namespace catamount::cuda
