#include "oracle/quantized.h"

#include "core/mxfp8.h"
#include "core/swiglu.h"

namespace catamount::oracle {
namespace {

void quantize_row_in_place(Precision precision, std::span<double> row) {
  const auto n = static_cast<std::int64_t>(row.size());
  std::vector<float> values(row.begin(), row.end());
  std::vector<std::uint8_t> codes(row.size());
  std::vector<float> scales(static_cast<std::size_t>(row_scales(precision).bytes(1, n) / 4 + 1));
  quantize_row(precision, values.data(), n, codes.data(), scales.data());
  dequantize_row(precision, codes.data(), scales.data(), 0, n, values.data());
  std::copy(values.begin(), values.end(), row.begin());
}

// Every expert's [rows, cols] matrix, quantized along `axis`.
Values quantized_weight(Precision precision, Contraction axis, const Values& in, std::int64_t count,
                        std::int64_t rows, std::int64_t cols) {
  std::vector<float> values(in.begin(), in.end());
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * cols));
  const std::int64_t scale_bytes = weight_scales(precision, axis).bytes(rows, cols);
  std::vector<float> scales(static_cast<std::size_t>(scale_bytes / 4 + 1));
  for (std::int64_t e = 0; e < count; ++e) {
    float* matrix = values.data() + e * rows * cols;
    quantize_weight(precision, axis, matrix, rows, cols, codes.data(), scales.data());
    dequantize_weight(precision, axis, codes.data(), scales.data(), rows, cols, matrix);
  }
  return {values.begin(), values.end()};
}

void quantize_experts(Precision precision, std::int64_t hidden, Experts* e) {
  const auto both = [&](Values* fprop, Values* dgrad, std::int64_t rows, std::int64_t cols) {
    *dgrad = quantized_weight(precision, Contraction::rows, *fprop, e->count, rows, cols);
    *fprop = quantized_weight(precision, Contraction::cols, *fprop, e->count, rows, cols);
  };
  both(&e->gate, &e->gate_dgrad, e->width, hidden);
  both(&e->up, &e->up_dgrad, e->width, hidden);
  both(&e->down, &e->down_dgrad, hidden, e->width);
}

}  // namespace

void apply_precision(Precision precision, Problem* problem) {
  if (precision == Precision::bf16) return;
  quantize_experts(precision, problem->hidden, &problem->experts);
  if (problem->shared.count > 0) quantize_experts(precision, problem->hidden, &problem->shared);
  problem->rounding.operand = [precision](std::span<double> row) {
    quantize_row_in_place(precision, row);
  };
  problem->rounding.kept = [limit = problem->swiglu.limit](std::span<double> row) {
    for (double& v : row) {
      v = static_cast<double>(to_float(kept_pre_activation(static_cast<float>(v), limit)));
    }
  };
}

}  // namespace catamount::oracle
