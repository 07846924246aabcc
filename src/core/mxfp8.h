// Blocks of E4M3 codes with a scale: the precisions mxfp8, mxfp8_plain and fp8_block.
//
// One scale is chosen for each *tile* of values and stored once for each *block* inside it:
//
//                 one activation row        weight, contracted along cols (along rows: transposed)
//   mxfp8         tile 1x128, block 1x32    tile 128x128, block 1x32    E8M0 bytes
//   mxfp8_plain   tile 1x32,  block 1x32    tile 1x32,    block 1x32    E8M0 bytes
//   fp8_block     tile 1x128, block 1x128   tile 128x128, block 128x128 FP32
//
// so mxfp8 is mxfp8_plain whose blocks of a tile happen to agree: any reader of MXFP8 can read it.
// Tiles at an edge are as large as what is there.
//
// A NaN or Inf among a tile's values makes its scale NaN, and with it all its values. Otherwise
// what is read back is finite. See docs/numerics.md.
#pragma once

#include <cstdint>

#include "catamount/moe.h"
#include "core/fp8.h"
#include "core/macros.h"
#include "core/tile.h"

namespace catamount {

inline constexpr int kMxBlock = 32;
inline constexpr int kScaleSpan = 128;

// How an E8M0 scale follows from a tile's largest magnitude (amax).
enum class ScaleRule : std::uint8_t {
  ceil,   // the smallest power of two >= amax / 448: no value saturates. Ours
  floor,  // 2^(floor(log2(amax)) - 8), the conversion the OCP spec shows: saturates amax in (448,
          // 512) 2^k
};

// The axis of a row-major [rows, cols] weight that a GEMM sums over.
enum class Contraction : std::uint8_t { rows, cols };

// Largest magnitude as FP32 bits: NaN > Inf > any number, so that the integer maximum keeps NaN.
CATAMOUNT_HD constexpr std::uint32_t amax_bits(std::uint32_t amax, float value) {
  const std::uint32_t magnitude = float_bits(value) & kFloatAbsMask;
  return amax > magnitude ? amax : magnitude;
}

// Codes 0 to 246 and NaN. 0 (2^-127) also for zeros: both rules' limit. 246 and no more, although
// `ceil` would want 247 for amax > 448 * 2^119: such values saturate rather than be read back as
// Inf.
CATAMOUNT_HD constexpr std::uint8_t mx_scale(std::uint32_t amax, ScaleRule rule) {
  if (amax >= kFloatInfBits) return kE8m0Nan;
  // 448 = 1.75 * 2^8. The addition carries into the exponent where the mantissa is above 1.75.
  const std::uint32_t rounded = rule == ScaleRule::ceil ? amax + 0x1F'FFFF : amax;
  const int code = static_cast<int>(rounded >> 23) - 8;
  return static_cast<std::uint8_t>(code < 0 ? 0 : (code > 246 ? 246 : code));
}

// amax / 448, at least 2^-126 (so that its inverse is finite; zeros have this scale too); NaN.
CATAMOUNT_HD constexpr float block_scale(std::uint32_t amax) {
  constexpr float kMinScale = 0x1p-126F;
  if (amax >= kFloatInfBits) return float_from_bits(kFloatNanBits);
  const float scale = float_from_bits(amax) / kE4m3Max;
  return scale > kMinScale ? scale : kMinScale;
}

// The two types of scale, for the loops below and for kernels. A value is stored as
// float_to_e4m3(value * inverse(scale)) and read as e4m3_to_float(code) * value(scale).
struct MxScale {
  using Stored = std::uint8_t;
  ScaleRule rule = ScaleRule::ceil;

  CATAMOUNT_HD constexpr Stored choose(std::uint32_t amax) const { return mx_scale(amax, rule); }
  CATAMOUNT_HD static constexpr float value(Stored scale) { return e8m0_to_float(scale); }
  // For the codes that `choose` gives: exact, and NaN's (255 wraps to itself) is NaN.
  CATAMOUNT_HD static constexpr float inverse(Stored scale) {
    return e8m0_to_float(static_cast<std::uint8_t>(2 * kE8m0Bias - scale));
  }
};

struct BlockScale {
  using Stored = float;

  CATAMOUNT_HD static constexpr Stored choose(std::uint32_t amax) { return block_scale(amax); }
  CATAMOUNT_HD static constexpr float value(Stored scale) { return scale; }
  CATAMOUNT_HD static constexpr float inverse(Stored scale) { return 1.0F / scale; }
};

// The table above, for a matrix; the scales are a row-major matrix of blocks.
struct ScaleGrid {
  int tile_rows;
  int tile_cols;
  int block_rows;
  int block_cols;
  int scale_bytes;

  CATAMOUNT_HD constexpr std::int64_t bytes(std::int64_t rows, std::int64_t cols) const {
    return ceil_div(rows, block_rows) * ceil_div(cols, block_cols) * scale_bytes;
  }
};

// Of one activation row. `precision` here and below: not bf16.
CATAMOUNT_HD constexpr ScaleGrid row_scales(Precision precision) {
  switch (precision) {
    case Precision::mxfp8:
      return {1, kScaleSpan, 1, kMxBlock, 1};
    case Precision::fp8_block:
      return {1, kScaleSpan, 1, kScaleSpan, 4};
    default:
      return {1, kMxBlock, 1, kMxBlock, 1};
  }
}

CATAMOUNT_HD constexpr ScaleGrid weight_scales(Precision precision, Contraction contraction) {
  if (precision == Precision::fp8_block) {
    return {kScaleSpan, kScaleSpan, kScaleSpan, kScaleSpan, 4};
  }
  const int block_rows = contraction == Contraction::rows ? kMxBlock : 1;
  const int block_cols = contraction == Contraction::rows ? 1 : kMxBlock;
  if (precision == Precision::mxfp8) return {kScaleSpan, kScaleSpan, block_rows, block_cols, 1};
  return {block_rows, block_cols, block_rows, block_cols, 1};
}

// Quantizes a [rows, cols] tile whose rows lie `stride` apart; returns its scale.
template <class Scale>
CATAMOUNT_HD typename Scale::Stored quantize_tile(Scale scale, const float* __restrict in,
                                                  std::int64_t stride, std::int64_t rows,
                                                  std::int64_t cols,
                                                  std::uint8_t* __restrict codes) {
  std::uint32_t amax = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) amax = amax_bits(amax, in[r * stride + c]);
  }
  const typename Scale::Stored stored = scale.choose(amax);
  const float inverse = scale.inverse(stored);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      codes[r * stride + c] = float_to_e4m3(in[r * stride + c] * inverse);
    }
  }
  return stored;
}

template <class Scale>
CATAMOUNT_HD void quantize_matrix(Scale scale, const ScaleGrid& grid, const float* in,
                                  std::int64_t rows, std::int64_t cols, std::uint8_t* codes,
                                  typename Scale::Stored* scales) {
  const std::int64_t scales_per_row = ceil_div(cols, grid.block_cols);
  for (std::int64_t row = 0; row < rows; row += grid.tile_rows) {
    const std::int64_t row_end = row + grid.tile_rows < rows ? row + grid.tile_rows : rows;
    for (std::int64_t col = 0; col < cols; col += grid.tile_cols) {
      const std::int64_t col_end = col + grid.tile_cols < cols ? col + grid.tile_cols : cols;
      const std::int64_t offset = row * cols + col;
      const typename Scale::Stored stored =
          quantize_tile(scale, in + offset, cols, row_end - row, col_end - col, codes + offset);
      for (std::int64_t r = row; r < row_end; r += grid.block_rows) {
        for (std::int64_t c = col; c < col_end; c += grid.block_cols) {
          scales[r / grid.block_rows * scales_per_row + c / grid.block_cols] = stored;
        }
      }
    }
  }
}

// Columns [begin, end) of a quantized row; out[0] is column `begin`.
template <class Scale>
CATAMOUNT_HD void dequantize_cols(int block_cols, const std::uint8_t* codes,
                                  const typename Scale::Stored* scales, std::int64_t begin,
                                  std::int64_t end, float* __restrict out) {
  if (block_cols == 1) {  // a loop of its own, for speed
    for (std::int64_t col = begin; col < end; ++col) {
      out[col - begin] = e4m3_to_float(codes[col]) * Scale::value(scales[col]);
    }
    return;
  }
  for (std::int64_t col = begin; col < end;) {
    const std::int64_t block_end = (col / block_cols + 1) * block_cols;
    const std::int64_t stop = block_end < end ? block_end : end;
    const float scale = Scale::value(scales[col / block_cols]);
    for (; col < stop; ++col) out[col - begin] = e4m3_to_float(codes[col]) * scale;
  }
}

// codes: [n]; scales: row_scales(precision).bytes(1, n), aligned to 4 for fp8_block. `rule` is
// MXFP8's.
CATAMOUNT_HD inline void quantize_row(Precision precision, const float* in, std::int64_t n,
                                      std::uint8_t* codes, void* scales,
                                      ScaleRule rule = ScaleRule::ceil) {
  const ScaleGrid grid = row_scales(precision);
  if (precision == Precision::fp8_block) {
    quantize_matrix(BlockScale{}, grid, in, 1, n, codes, static_cast<float*>(scales));
  } else {
    quantize_matrix(MxScale{rule}, grid, in, 1, n, codes, static_cast<std::uint8_t*>(scales));
  }
}

CATAMOUNT_HD inline void dequantize_row(Precision precision, const std::uint8_t* codes,
                                        const void* scales, std::int64_t begin, std::int64_t end,
                                        float* out) {
  const int block = row_scales(precision).block_cols;
  if (precision == Precision::fp8_block) {
    dequantize_cols<BlockScale>(block, codes, static_cast<const float*>(scales), begin, end, out);
  } else {
    dequantize_cols<MxScale>(block, codes, static_cast<const std::uint8_t*>(scales), begin, end,
                             out);
  }
}

// codes: [rows, cols], laid out as `in` for either contraction; scales:
// weight_scales(precision, contraction).bytes(rows, cols). One matrix: gate and up of a fused
// weight are two, so that no tile holds values of both.
CATAMOUNT_HD inline void quantize_weight(Precision precision, Contraction contraction,
                                         const float* in, std::int64_t rows, std::int64_t cols,
                                         std::uint8_t* codes, void* scales,
                                         ScaleRule rule = ScaleRule::ceil) {
  const ScaleGrid grid = weight_scales(precision, contraction);
  if (precision == Precision::fp8_block) {
    quantize_matrix(BlockScale{}, grid, in, rows, cols, codes, static_cast<float*>(scales));
  } else {
    quantize_matrix(MxScale{rule}, grid, in, rows, cols, codes, static_cast<std::uint8_t*>(scales));
  }
}

CATAMOUNT_HD inline void dequantize_weight(Precision precision, Contraction contraction,
                                           const std::uint8_t* codes, const void* scales,
                                           std::int64_t rows, std::int64_t cols, float* out) {
  const ScaleGrid grid = weight_scales(precision, contraction);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t first = r / grid.block_rows * ceil_div(cols, grid.block_cols);
    if (precision == Precision::fp8_block) {
      dequantize_cols<BlockScale>(grid.block_cols, codes + r * cols,
                                  static_cast<const float*>(scales) + first, 0, cols,
                                  out + r * cols);
    } else {
      dequantize_cols<MxScale>(grid.block_cols, codes + r * cols,
                               static_cast<const std::uint8_t*>(scales) + first, 0, cols,
                               out + r * cols);
    }
  }
}

}  // namespace catamount
