// How one activation row [cols] lies in memory: values (BF16, or E4M3 codes), then its scales.
//
//   bf16                 2 cols bytes
//   mxfp8, mxfp8_plain   cols codes, then one E8M0 byte per 32 columns
//   fp8_block            cols codes, then (at a multiple of 4) one FP32 per 128 columns
//
// Rows are 16-byte aligned, for bulk copies. A row is everything a peer pulls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "catamount/moe.h"
#include "core/dtype.h"
#include "core/macros.h"
#include "core/mxfp8.h"
#include "core/tile.h"

namespace catamount {

struct RowFormat {
  static constexpr std::int64_t kAlignment = 16;

  Precision precision = Precision::bf16;
  std::int64_t cols = 0;

  CATAMOUNT_HD constexpr std::int64_t scales_offset() const {
    return precision == Precision::bf16 ? 2 * cols : round_up(cols, 4);
  }
  CATAMOUNT_HD constexpr std::int64_t stride_bytes() const {
    const std::int64_t scales =
        precision == Precision::bf16 ? 0 : row_scales(precision).bytes(1, cols);
    return round_up(scales_offset() + scales, kAlignment);
  }

  // Rounds or quantizes `values` [cols]; the padding behind the scales is zeroed.
  CATAMOUNT_HD void store(std::byte* row, const float* values) const {
    std::int64_t used = scales_offset();
    if (precision == Precision::bf16) {
      to_bf16(values, cols, reinterpret_cast<Bf16*>(row));
    } else {
      quantize_row(precision, values, cols, reinterpret_cast<std::uint8_t*>(row), row + used);
      used += row_scales(precision).bytes(1, cols);
    }
    for (; used < stride_bytes(); ++used) row[used] = std::byte{0};
  }

  // Columns [begin, begin + n) of a row that is written tile by tile: begin is a multiple of
  // kScaleSpan, n too or up to the row's end, so that no scale covers columns of two tiles.
  CATAMOUNT_HD void store_span(std::byte* row, std::int64_t begin, std::int64_t n,
                               const float* values) const {
    if (precision == Precision::bf16) {
      to_bf16(values, n, reinterpret_cast<Bf16*>(row) + begin);
    } else {
      quantize_row(precision, values, n, reinterpret_cast<std::uint8_t*>(row) + begin,
                   row + scales_offset() + row_scales(precision).bytes(1, begin));
    }
  }

  // Columns [begin, end) as FP32; out[0] is column `begin`.
  CATAMOUNT_HD void load(const std::byte* row, std::int64_t begin, std::int64_t end,
                         float* out) const {
    if (precision == Precision::bf16) {
      to_float(reinterpret_cast<const Bf16*>(row) + begin, end - begin, out);
    } else {
      dequantize_row(precision, reinterpret_cast<const std::uint8_t*>(row), row + scales_offset(),
                     begin, end, out);
    }
  }
};

}  // namespace catamount
