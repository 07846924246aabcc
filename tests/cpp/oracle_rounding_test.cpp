// Where the oracle rounds, and what it rounds to in each precision.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "core/mxfp8.h"
#include "oracle/quantized.h"
#include "oracle_cases.h"

namespace catamount::oracle {
namespace {

// Rows are told apart by their lengths: H = 6, I = 5, the shared expert's 7.
TEST(OracleRounding, EachRowIsRoundedOnce) {
  Problem p = small_problem({"", true, true, {}});
  std::mutex mutex;
  std::map<std::size_t, int> operands;
  std::map<std::size_t, int> kept;
  const auto count = [&](std::map<std::size_t, int>* rows) {
    return [&mutex, rows](std::span<double> row) {
      const std::scoped_lock lock(mutex);
      ++(*rows)[row.size()];
    };
  };
  p.rounding = {count(&operands), count(&kept)};
  const int tokens = 5;
  const int visits = 10;
  forward(p);
  EXPECT_EQ(operands, (std::map<std::size_t, int>{{6, tokens}, {5, visits}, {7, tokens}}));
  EXPECT_TRUE(kept.empty());
  operands.clear();
  backward(p, small_dy(p));  // x and dy; d_gate, d_up and weight * h
  EXPECT_EQ(operands,
            (std::map<std::size_t, int>{{6, 2 * tokens}, {5, 3 * visits}, {7, 3 * tokens}}));
  EXPECT_EQ(kept, (std::map<std::size_t, int>{{5, 2 * visits}, {7, 2 * tokens}}));
}

Rounding::Row doubling(std::size_t length) {
  return [length](std::span<double> row) {
    for (double& v : row) v *= row.size() == length ? 2 : 1;
  };
}

void expect_scaled(const Values& result, double factor, const Values& plain) {
  for (std::size_t i = 0; i < result.size(); ++i) EXPECT_EQ(result[i], factor * plain[i]) << i;
}

// "Rounding" that doubles shows which results a rounded row goes into.
TEST(OracleRounding, HiddenRowsOfTheExpertAreOperandsOfWhatFollows) {
  for (const RouterWeight weight : {RouterWeight::in_combine, RouterWeight::before_down}) {
    Problem p = small_problem({"", false, false, {}, weight});
    const Values out = forward(p);
    const Gradients plain = backward(p, small_dy(p));
    p.rounding.operand = doubling(5);
    expect_scaled(forward(p), 2, out);
    const Gradients g = backward(p, small_dy(p));
    expect_scaled(g.dx, 2, plain.dx);
    expect_scaled(g.experts.gate, 2, plain.experts.gate);
    expect_scaled(g.experts.up, 2, plain.experts.up);
    expect_scaled(g.experts.down, 2, plain.experts.down);
    expect_scaled(g.d_topk_weights, 1, plain.d_topk_weights);  // from the h that is not rounded
  }
}

// The row that is rounded holds the router weight where, and only where, it is applied before.
TEST(OracleRounding, RouterWeightIsInTheRowOnlyBeforeDown) {
  for (const RouterWeight weight : {RouterWeight::in_combine, RouterWeight::before_down}) {
    Problem p = small_problem({"", false, false, {}, weight});
    p.rounding.operand = [](std::span<double> row) {
      if (row.size() == 5) std::fill(row.begin(), row.end(), 1.0);
    };
    const Values out = forward(p);
    // Token 3: three times expert 3, whose y is now the sum of down's columns.
    const double factor = weight == RouterWeight::before_down
                              ? 3.0
                              : p.topk_weights[9] + p.topk_weights[10] + p.topk_weights[11];
    for (std::size_t j = 0; j < 6; ++j) {
      double y = 0;
      for (std::size_t i = 0; i < 5; ++i) y += p.experts.down[(3 * 6 + j) * 5 + i];
      EXPECT_NEAR(out[3 * 6 + j], factor * y, 1e-12);
    }
  }
}

TEST(OracleRounding, TokenRowsAreOperands) {
  Problem p = small_problem({"", true, false, {}});
  // Pre-activations that do not depend on x, so that everything below is linear in x and dy.
  p.rounding.kept = [](std::span<double> row) { std::fill(row.begin(), row.end(), 0.75); };
  const Gradients plain = backward(p, small_dy(p));
  p.rounding.operand = doubling(6);
  const Gradients g = backward(p, small_dy(p));
  expect_scaled(g.dx, 2, plain.dx);                          // dy
  expect_scaled(g.d_topk_weights, 2, plain.d_topk_weights);  // dy
  expect_scaled(g.experts.gate, 4, plain.experts.gate);      // dy and x
  expect_scaled(g.experts.up, 4, plain.experts.up);
  expect_scaled(g.experts.down, 2, plain.experts.down);
  expect_scaled(g.experts.bias_gate, 2, plain.experts.bias_gate);
  expect_scaled(g.experts.bias_down, 2, plain.experts.bias_down);
}

TEST(OracleRounding, WhatItThrowsArrives) {
  Problem p = small_problem({"", false, false, {}});
  p.rounding.operand = [](std::span<double> row) {
    if (row.size() == 5) throw std::runtime_error("from a worker");
  };
  EXPECT_THROW(forward(p), std::runtime_error);
}

class OraclePrecision : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Fp8, OraclePrecision,
                         testing::Values(Precision::mxfp8, Precision::mxfp8_plain,
                                         Precision::fp8_block));

// Experts of 256 x 160, so that there are several tiles and an edge. Row 1 of each weight is
// 2^20 times larger than the others, column 2 likewise.
Problem wide_problem() {
  model::Random random(5);
  Problem p;
  p.hidden = 160;
  p.topk = 1;
  p.experts = random_experts(random, 2, 256, p.hidden, true);
  p.shared = random_experts(random, 1, 96, p.hidden, false);
  const auto enlarge = [](Values* w, std::int64_t cols) {
    for (std::size_t i = 0; i < w->size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      if (at / cols == 1 || at % cols == 2) (*w)[i] *= 0x1p20;
    }
  };
  for (Experts* e : {&p.experts, &p.shared}) {
    enlarge(&e->gate, p.hidden);
    enlarge(&e->up, p.hidden);
    enlarge(&e->down, e->width);
  }
  return p;
}

// Largest relative error over the elements of row `row` and of column `col` of the first matrix,
// past the first tiles of the other axis.
double row_error(const Values& a, const Values& b, std::int64_t cols, std::int64_t row) {
  double worst = 0;
  for (std::int64_t c = 32; c < cols; ++c) {
    const auto at = static_cast<std::size_t>(row * cols + c);
    worst = std::max(worst, std::fabs(a[at] - b[at]) / std::fabs(b[at]));
  }
  return worst;
}
double col_error(const Values& a, const Values& b, std::int64_t cols, std::int64_t col) {
  double worst = 0;
  for (std::int64_t r = 32; r < 96; ++r) {
    const auto at = static_cast<std::size_t>(r * cols + col);
    worst = std::max(worst, std::fabs(a[at] - b[at]) / std::fabs(b[at]));
  }
  return worst;
}

// E4M3 has 3 bits behind the leading one: half a step is 2^-4 of the value, if it is not small in
// its block. The smallest |value| of these matrices is far above 2^-14 of its block's largest.
constexpr double kHalfStep = 0x1p-4;

// What tells the axes apart: a scale along the contraction never mixes an outlier row (column) of
// the other axis in. The 128x128 tiles mix both.
TEST_P(OraclePrecision, WeightsAreQuantizedAlongWhatTheyAreContracted) {
  const Problem exact = wide_problem();
  Problem p = exact;
  apply_precision(GetParam(), &p);
  struct Weight {
    const Values &fprop, &dgrad, &exact;
    std::int64_t cols;
  };
  const std::int64_t h = p.hidden;
  for (const Weight& w :
       {Weight{p.experts.gate, p.experts.gate_dgrad, exact.experts.gate, h},
        Weight{p.experts.up, p.experts.up_dgrad, exact.experts.up, h},
        Weight{p.experts.down, p.experts.down_dgrad, exact.experts.down, p.experts.width},
        Weight{p.shared.gate, p.shared.gate_dgrad, exact.shared.gate, h},
        Weight{p.shared.down, p.shared.down_dgrad, exact.shared.down, p.shared.width}}) {
    ASSERT_EQ(w.fprop.size(), w.exact.size());
    ASSERT_EQ(w.dgrad.size(), w.exact.size());
    if (GetParam() == Precision::mxfp8_plain) {
      // Row 0 next to the large row 1; column 1 next to the large column 2.
      EXPECT_LE(row_error(w.fprop, w.exact, w.cols, 0), kHalfStep);
      EXPECT_EQ(row_error(w.dgrad, w.exact, w.cols, 0), 1.0);
      EXPECT_EQ(col_error(w.fprop, w.exact, w.cols, 1), 1.0);
      EXPECT_LE(col_error(w.dgrad, w.exact, w.cols, 1), kHalfStep);
    } else {
      EXPECT_EQ(w.fprop, w.dgrad);
      EXPECT_EQ(row_error(w.fprop, w.exact, w.cols, 0), 1.0);
      EXPECT_EQ(col_error(w.fprop, w.exact, w.cols, 1), 1.0);
    }
  }
  EXPECT_EQ(p.experts.bias_gate, exact.experts.bias_gate);
  EXPECT_EQ(p.experts.bias_down, exact.experts.bias_down);
}

TEST_P(OraclePrecision, OperandRowsAreTheCodecs) {
  Problem p = wide_problem();
  apply_precision(GetParam(), &p);
  model::Random random(6);
  Values row = random_values(random, 160);
  for (std::size_t i = 0; i < 160; i += 7) row[i] *= 300;
  std::vector<float> in(row.begin(), row.end());
  std::vector<std::uint8_t> codes(160);
  std::vector<float> scales(8);
  quantize_row(GetParam(), in.data(), 160, codes.data(), scales.data());
  dequantize_row(GetParam(), codes.data(), scales.data(), 0, 160, in.data());
  p.rounding.operand(row);
  EXPECT_EQ(row, Values(in.begin(), in.end()));
  Values again = row;
  p.rounding.operand(again);
  for (std::size_t i = 0; i < row.size(); ++i) {  // fp8_block's scales may move by an FP32 step
    EXPECT_NEAR(again[i], row[i], 1e-6 * std::fabs(row[i]));
  }
}

TEST_P(OraclePrecision, PreActivationsAreKeptAsBf16) {
  Problem p = wide_problem();
  p.swiglu.limit = 7;
  apply_precision(GetParam(), &p);
  Values row = {1.0 + 0x1p-9, -3.14159265, 1e30, 0.0, std::nextafter(7.0, 8.0), 7.0001, -7.0001};
  p.rounding.kept(row);
  // 7.0001 stays beyond the limit; what FP32 cannot tell from the limit is on it.
  EXPECT_EQ(row, (Values{1.0, -3.140625, 0x1.94p99, 0.0, 7.0, 7.03125, -7.03125}));
}

TEST(OraclePrecision, Bf16IsExact) {
  const Problem exact = wide_problem();
  Problem p = exact;
  apply_precision(Precision::bf16, &p);
  EXPECT_EQ(p.experts.gate, exact.experts.gate);
  EXPECT_TRUE(p.experts.gate_dgrad.empty());
  EXPECT_FALSE(p.rounding.operand);
  EXPECT_FALSE(p.rounding.kept);
}

}  // namespace
}  // namespace catamount::oracle
