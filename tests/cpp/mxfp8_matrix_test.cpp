// Rows and weights of the FP8 precisions, compared with a reference that knows only which values
// share a scale: tails, both axes, NaN and Inf tiles, zeros, huge and tiny values, and what the
// forms promise each other.
#include "core/mxfp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fp8_reference.h"

namespace catamount {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kFloatMax = std::numeric_limits<float>::max();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

const char* name(Precision precision) {
  switch (precision) {
    case Precision::bf16:
      return "bf16";
    case Precision::mxfp8:
      return "mxfp8";
    case Precision::mxfp8_plain:
      return "mxfp8_plain";
    case Precision::fp8_block:
      return "fp8_block";
  }
  return "";
}

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

enum class Layout {
  row,
  weight_cols,
  weight_rows
};  // one row; a weight contracted along cols, rows

struct Quantized {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> mx_scales;  // one of the two
  std::vector<float> block_scales;
  std::vector<float> values;  // read back
};

Quantized quantize(Precision precision, Layout layout, const std::vector<float>& in,
                   std::int64_t rows, std::int64_t cols, ScaleRule rule = ScaleRule::ceil) {
  const auto contraction = layout == Layout::weight_rows ? Contraction::rows : Contraction::cols;
  const bool row = layout == Layout::row;
  const std::int64_t bytes =
      (row ? row_scales(precision) : weight_scales(precision, contraction)).bytes(rows, cols);
  Quantized q;
  q.codes.assign(in.size(), 0xEE);
  q.values.assign(in.size(), -77.0F);
  void* scales = nullptr;
  if (precision == Precision::fp8_block) {
    q.block_scales.assign(index(bytes / 4), -1.0F);
    scales = q.block_scales.data();
  } else {
    q.mx_scales.assign(index(bytes), 0xEE);
    scales = q.mx_scales.data();
  }
  if (row) {
    quantize_row(precision, in.data(), cols, q.codes.data(), scales, rule);
    dequantize_row(precision, q.codes.data(), scales, 0, cols, q.values.data());
  } else {
    quantize_weight(precision, contraction, in.data(), rows, cols, q.codes.data(), scales, rule);
    dequantize_weight(precision, contraction, q.codes.data(), scales, rows, cols, q.values.data());
  }
  return q;
}

// Values with the same tile share a scale.
std::pair<std::int64_t, std::int64_t> tile_of(Precision precision, Layout layout, std::int64_t r,
                                              std::int64_t c) {
  if (precision == Precision::mxfp8_plain) {
    return layout == Layout::weight_rows ? std::pair{r / 32, c} : std::pair{r, c / 32};
  }
  return layout == Layout::row ? std::pair{r, c / 128} : std::pair{r / 128, c / 128};
}

double stored_scale(const Quantized& q, Precision precision, Layout layout, std::int64_t cols,
                    std::int64_t r, std::int64_t c) {
  if (precision == Precision::fp8_block) {
    return q.block_scales.at(index(r / 128 * ((cols + 127) / 128) + c / 128));
  }
  const std::int64_t at =
      layout == Layout::weight_rows ? r / 32 * cols + c : r * ((cols + 31) / 32) + c / 32;
  const int code = q.mx_scales.at(index(at));
  return code == 0xFF ? std::nan("") : std::ldexp(1.0, code - 127);
}

void expect_as_reference(Precision precision, Layout layout, const std::vector<float>& in,
                         std::int64_t rows, std::int64_t cols, ScaleRule rule) {
  std::map<std::pair<std::int64_t, std::int64_t>, double> amax;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    double& tile_amax = amax[tile_of(precision, layout, i / cols, i % cols)];
    tile_amax = std::max(tile_amax, std::fabs(double{in[index(i)]}));
  }
  const Quantized q = quantize(precision, layout, in, rows, cols, rule);
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const double tile_amax = amax[tile_of(precision, layout, i / cols, i % cols)];
    const double scale = stored_scale(q, precision, layout, cols, i / cols, i % cols);
    const float value = in[index(i)];
    const int code = q.codes[index(i)];
    if (precision == Precision::fp8_block) {
      ASSERT_EQ(scale, std::max(static_cast<float>(tile_amax) / 448.0F, 0x1p-126F));
      ASSERT_EQ(code, test::nearest_e4m3(value * (1.0F / static_cast<float>(scale))));
    } else {
      ASSERT_EQ(std::ilogb(scale), rule == ScaleRule::ceil ? test::ceil_scale_exponent(tile_amax)
                                                           : test::floor_scale_exponent(tile_amax));
      ASSERT_EQ(code, test::nearest_e4m3(value / scale)) << value << " / " << scale;
    }
    ASSERT_EQ(q.values[index(i)], static_cast<float>(test::e4m3_value(code) * scale));
  }
}

using Case = std::tuple<Precision, Layout, std::int64_t, std::int64_t>;
class Blocks : public testing::TestWithParam<Case> {};

// Magnitudes from 2^-20 to 2^20, so that neighbouring blocks want different scales.
std::vector<float> random_values(std::int64_t n) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(index(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = normal(random) * std::ldexp(1.0F, static_cast<int>(i / 16 % 41) - 20);
  }
  return values;
}

TEST_P(Blocks, AreAsTheReferenceSays) {
  const auto [precision, layout, rows, cols] = GetParam();
  const std::vector<float> in = random_values(rows * cols);
  expect_as_reference(precision, layout, in, rows, cols, ScaleRule::ceil);
  expect_as_reference(precision, layout, in, rows, cols, ScaleRule::floor);
}

// A NaN or Inf makes exactly the values that share its scale NaN.
TEST_P(Blocks, NanAndInfFillTheirTileAndNothingElse) {
  const auto [precision, layout, rows, cols] = GetParam();
  for (const float bad : {kNan, -kNan, kInf, -kInf}) {
    std::vector<float> in = random_values(rows * cols);
    const std::int64_t bad_row = rows / 2;
    const std::int64_t bad_col = cols - 5;
    in[index(bad_row * cols + bad_col)] = bad;
    const auto bad_tile = tile_of(precision, layout, bad_row, bad_col);
    const Quantized q = quantize(precision, layout, in, rows, cols);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        const bool spoilt = tile_of(precision, layout, r, c) == bad_tile;
        const float value = q.values[index(r * cols + c)];
        const double scale = stored_scale(q, precision, layout, cols, r, c);
        ASSERT_EQ(std::isnan(value), spoilt) << r << ", " << c;
        ASSERT_EQ(std::isnan(scale), spoilt) << r << ", " << c;
        ASSERT_EQ(q.codes[index(r * cols + c)] == kE4m3Nan, spoilt) << r << ", " << c;
      }
    }
  }
}

TEST_P(Blocks, ZerosStayZero) {
  const auto [precision, layout, rows, cols] = GetParam();
  std::vector<float> in(index(rows * cols), 0.0F);
  in[1] = -0.0F;
  const Quantized q = quantize(precision, layout, in, rows, cols);
  for (std::size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(float_bits(q.values[i]), float_bits(in[i])) << i;
  }
  for (const std::uint8_t scale : q.mx_scales) ASSERT_EQ(scale, 0);
  for (const float scale : q.block_scales) ASSERT_EQ(scale, 0x1p-126F);
}

// The largest and the smallest numbers of FP32, subnormal ones included, all in range when read
// back.
TEST_P(Blocks, HugeAndTinyValuesStayFinite) {
  const auto [precision, layout, rows, cols] = GetParam();
  for (const float amax : {kFloatMax, 0x1.Cp127F, 0x1p-118F, 0x1p-126F, 0x1p-130F, kSmallest}) {
    std::vector<float> in(index(rows * cols), amax);
    in[0] = -amax;
    for (const ScaleRule rule : {ScaleRule::ceil, ScaleRule::floor}) {
      const Quantized q = quantize(precision, layout, in, rows, cols, rule);
      const double first = q.values[0];
      // Half a step of E4M3, a whole quarter where the value saturates, and half of the smallest
      // step.
      const double bound = std::max(double{amax} / 8, std::ldexp(1.0, -136));
      ASSERT_NEAR(first, -double{amax}, bound) << amax;
      for (std::size_t i = 1; i < in.size(); ++i) ASSERT_EQ(q.values[i], -first) << amax;
    }
  }
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const auto [precision, layout, rows, cols] = info.param;
  const char* where = layout == Layout::row           ? "row"
                      : layout == Layout::weight_cols ? "weight_along_cols"
                                                      : "weight_along_rows";
  return std::string(name(precision)) + "_" + where + "_" + std::to_string(rows) + "x" +
         std::to_string(cols);
}

const auto kPrecisions =
    testing::Values(Precision::mxfp8, Precision::mxfp8_plain, Precision::fp8_block);

INSTANTIATE_TEST_SUITE_P(Rows, Blocks,
                         testing::Combine(kPrecisions, testing::Values(Layout::row),
                                          testing::Values(1),
                                          testing::Values(32, 96, 128, 160, 512, 2880)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Weights, Blocks,
                         testing::Combine(kPrecisions,
                                          testing::Values(Layout::weight_cols, Layout::weight_rows),
                                          testing::Values(32, 160), testing::Values(64, 128, 288)),
                         case_name);

// ---- What the forms promise each other. ----

// In mxfp8 the four scales of a span agree; read as mxfp8_plain, the same bytes give the same
// values.
TEST(Forms, SharedIsValidPlain) {
  constexpr std::int64_t kCols = 2880;
  const std::vector<float> in = random_values(kCols);
  const Quantized q = quantize(Precision::mxfp8, Layout::row, in, 1, kCols);
  for (std::int64_t block = 0; block < kCols / 32; ++block) {
    ASSERT_EQ(q.mx_scales[index(block)], q.mx_scales[index(block / 4 * 4)]);
  }
  std::vector<float> values(index(kCols));
  dequantize_row(Precision::mxfp8_plain, q.codes.data(), q.mx_scales.data(), 0, kCols,
                 values.data());
  EXPECT_EQ(std::memcmp(values.data(), q.values.data(), values.size() * sizeof(float)), 0);
}

// fprop and dgrad read the same weights, so that quantizing along either axis gives the same data.
TEST(Forms, BothContractionsOfATileAgree) {
  constexpr std::int64_t kRows = 160;
  constexpr std::int64_t kCols = 288;
  const std::vector<float> in = random_values(kRows * kCols);
  for (const Precision precision : {Precision::mxfp8, Precision::fp8_block}) {
    const Quantized along_cols = quantize(precision, Layout::weight_cols, in, kRows, kCols);
    const Quantized along_rows = quantize(precision, Layout::weight_rows, in, kRows, kCols);
    EXPECT_EQ(along_cols.codes, along_rows.codes);
    EXPECT_EQ(along_cols.values, along_rows.values);
    EXPECT_EQ(along_cols.block_scales, along_rows.block_scales);
  }
  EXPECT_NE(quantize(Precision::mxfp8_plain, Layout::weight_cols, in, kRows, kCols).values,
            quantize(Precision::mxfp8_plain, Layout::weight_rows, in, kRows, kCols).values);
}

// What is quantized already is not changed by quantizing it again.
TEST(Forms, RequantizingIsExact) {
  constexpr std::int64_t kCols = 512;
  const std::vector<float> in = random_values(kCols);
  for (const Precision precision : {Precision::mxfp8, Precision::mxfp8_plain}) {
    const Quantized once = quantize(precision, Layout::row, in, 1, kCols);
    EXPECT_EQ(quantize(precision, Layout::row, once.values, 1, kCols).values, once.values);
  }
}

TEST(Forms, PartOfARowIsReadAsTheWholeIs) {
  constexpr std::int64_t kCols = 416;
  const std::vector<float> in = random_values(kCols);
  for (const Precision precision :
       {Precision::mxfp8, Precision::mxfp8_plain, Precision::fp8_block}) {
    const Quantized q = quantize(precision, Layout::row, in, 1, kCols);
    const void* scales = precision == Precision::fp8_block
                             ? static_cast<const void*>(q.block_scales.data())
                             : static_cast<const void*>(q.mx_scales.data());
    for (const auto& [begin, end] :
         {std::pair{0, 0}, {0, 1}, {31, 33}, {33, 34}, {100, 416}, {127, 257}, {415, 416}}) {
      std::vector<float> part(index(end - begin + 1), 5.0F);
      dequantize_row(precision, q.codes.data(), scales, begin, end, part.data());
      for (int c = begin; c < end; ++c) {
        ASSERT_EQ(part[index(c - begin)], q.values[index(c)]) << name(precision) << " " << c;
      }
      ASSERT_EQ(part.back(), 5.0F);
    }
  }
}

}  // namespace
}  // namespace catamount
