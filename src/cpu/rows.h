// Rows of a pool, and how a GEMM reads them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/row_format.h"
#include "cpu/gemm.h"

namespace catamount::cpu {

using Scratch = std::vector<float>;

struct RowPool {
  std::byte* data = nullptr;
  RowFormat format;
  std::int64_t stride = 0;  // bytes

  std::byte* row(std::int64_t i) const { return data + i * stride; }

  // Rows [row0, row0 + rows), columns [col0, col0 + cols) as a GEMM operand: BF16 rows as they are,
  // FP8 rows decoded into `scratch`.
  GemmOperand operand(std::int64_t row0, std::int64_t rows, std::int64_t col0, std::int64_t cols,
                      Scratch& scratch) const {
    if (format.precision == Precision::bf16) {
      return {reinterpret_cast<const Bf16*>(row(row0)) + col0, DType::bf16, stride / 2};
    }
    scratch.resize(static_cast<std::size_t>(rows * cols));
    for (std::int64_t r = 0; r < rows; ++r) {
      format.load(row(row0 + r), col0, col0 + cols, scratch.data() + r * cols);
    }
    return {scratch.data(), DType::f32, cols};
  }
};

}  // namespace catamount::cpu
