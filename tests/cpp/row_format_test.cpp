// Rows in memory: sizes, what is stored where, reading parts from any column.
#include "core/row_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "fp8_reference.h"

namespace catamount {
namespace {

constexpr Precision kAll[] = {Precision::bf16, Precision::mxfp8, Precision::mxfp8_plain,
                              Precision::fp8_block};

std::vector<float> some_values(std::int64_t n) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) {
    values.push_back(std::sin(static_cast<float>(3 * i + 1)) *
                     std::ldexp(1.0F, static_cast<int>(i / 32 % 9)));
  }
  return values;
}

// A row buffer with a guard behind it, 16-byte aligned as pools are.
struct Row {
  static constexpr std::size_t kGuard = 32;
  explicit Row(std::int64_t bytes)
      : data(static_cast<std::size_t>(bytes) + kGuard, std::byte{0xAB}),
        used(data.size() - kGuard) {}

  bool guard_intact() const {
    for (std::size_t i = used; i < data.size(); ++i) {
      if (data[i] != std::byte{0xAB}) return false;
    }
    return true;
  }

  std::vector<std::byte> data;
  std::size_t used;
};

TEST(RowFormat, Sizes) {
  struct Expected {
    Precision precision;
    std::int64_t cols;
    std::int64_t scales_offset;
    std::int64_t stride_bytes;
  };
  for (const Expected& e :
       {Expected{Precision::bf16, 8, 16, 16}, Expected{Precision::bf16, 200, 400, 400},
        Expected{Precision::bf16, 7168, 14336, 14336}, Expected{Precision::mxfp8, 32, 32, 48},
        Expected{Precision::mxfp8, 7168, 7168, 7392},
        Expected{Precision::mxfp8_plain, 2880, 2880, 2976},
        Expected{Precision::fp8_block, 32, 32, 48},
        Expected{Precision::fp8_block, 2880, 2880, 2976},
        Expected{Precision::fp8_block, 7168, 7168, 7392}}) {
    const RowFormat format{e.precision, e.cols};
    EXPECT_EQ(format.scales_offset(), e.scales_offset) << e.cols;
    EXPECT_EQ(format.stride_bytes(), e.stride_bytes) << e.cols;
  }
  EXPECT_EQ((RowFormat{Precision::bf16, std::int64_t{1} << 33}.stride_bytes()),
            std::int64_t{1} << 34);
}

TEST(RowFormat, Bf16RowsAreRoundedValues) {
  const RowFormat format{Precision::bf16, 40};
  const std::vector<float> values = some_values(40);
  Row row(format.stride_bytes());
  format.store(row.data.data(), values.data());
  for (std::size_t i = 0; i < 40; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, row.data.data() + 2 * i, 2);
    EXPECT_EQ(bits, to_bf16(values[i]).bits);
  }
}

TEST(RowFormat, Fp8RowsAreCodesThenScales) {
  for (const Precision precision :
       {Precision::mxfp8, Precision::mxfp8_plain, Precision::fp8_block}) {
    constexpr std::int64_t kCols = 288;
    const RowFormat format{precision, kCols};
    const std::vector<float> values = some_values(kCols);
    Row row(format.stride_bytes());
    format.store(row.data.data(), values.data());
    for (std::size_t i = 0; i < kCols; ++i) {
      const std::byte* scales = row.data.data() + kCols;
      double scale = 0;
      if (precision == Precision::fp8_block) {
        float stored = 0;
        std::memcpy(&stored, scales + i / 128 * 4, 4);
        scale = stored;
      } else {
        scale = std::ldexp(1.0, static_cast<int>(scales[i / 32]) - 127);
      }
      const double value = test::e4m3_value(static_cast<int>(row.data[i])) * scale;
      // E4M3 keeps 4 bits: within 1/16 of the value, or half its smallest step.
      ASSERT_NEAR(value, values[i], std::max(std::fabs(double{values[i]}) / 16, scale * 0x1p-10))
          << i;
    }
  }
}

TEST(RowFormat, AnyPartIsReadAsTheWholeIs) {
  for (const Precision precision : kAll) {
    constexpr std::int64_t kCols = 416;
    const RowFormat format{precision, kCols};
    const std::vector<float> values = some_values(kCols);
    Row row(format.stride_bytes());
    format.store(row.data.data(), values.data());
    std::vector<float> whole(kCols);
    format.load(row.data.data(), 0, kCols, whole.data());
    for (std::int64_t begin = 0; begin <= kCols; begin += 13) {
      for (std::int64_t end = begin; end <= kCols; end += 29) {
        std::vector<float> part(static_cast<std::size_t>(end - begin) + 1, -3.0F);
        format.load(row.data.data(), begin, end, part.data());
        ASSERT_EQ(std::memcmp(part.data(), whole.data() + begin,
                              static_cast<std::size_t>(end - begin) * sizeof(float)),
                  0);
        ASSERT_EQ(part.back(), -3.0F);
      }
    }
  }
}

// All bytes of a row are written, padding too: nothing of an earlier pass shows.
TEST(RowFormat, StoreWritesTheWholeRowAndNoMore) {
  for (const Precision precision : kAll) {
    for (const std::int64_t cols : {32, 96, 160, 2880}) {
      const RowFormat format{precision, cols};
      const std::vector<float> values = some_values(cols);
      Row first(format.stride_bytes());
      Row second(format.stride_bytes());
      for (std::size_t i = 0; i < second.used; ++i) second.data[i] = std::byte{0x5C};
      format.store(first.data.data(), values.data());
      format.store(second.data.data(), values.data());
      EXPECT_EQ(first.data, second.data);
      EXPECT_TRUE(first.guard_intact());
    }
  }
}

TEST(RowFormat, SpansMakeTheWholeRow) {
  for (const Precision precision : kAll) {
    for (const std::int64_t cols : {32, 160, 416}) {
      const RowFormat format{precision, cols};
      const std::vector<float> values = some_values(cols);
      Row whole(format.stride_bytes());
      Row spans(format.stride_bytes());
      for (Row* row : {&whole, &spans}) std::fill_n(row->data.begin(), row->used, std::byte{0});
      format.store(whole.data.data(), values.data());
      for (std::int64_t col = 0; col < cols; col += kScaleSpan) {
        const std::int64_t n = std::min<std::int64_t>(kScaleSpan, cols - col);
        format.store_span(spans.data.data(), col, n, values.data() + col);
      }
      EXPECT_EQ(spans.data, whole.data);
    }
  }
}

TEST(RowFormat, NanSpoilsItsValueOrItsBlock) {
  for (const Precision precision : kAll) {
    constexpr std::int64_t kCols = 256;
    const RowFormat format{precision, kCols};
    std::vector<float> values = some_values(kCols);
    values[40] = std::numeric_limits<float>::quiet_NaN();
    Row row(format.stride_bytes());
    format.store(row.data.data(), values.data());
    std::vector<float> back(kCols);
    format.load(row.data.data(), 0, kCols, back.data());
    std::int64_t nans = 0;
    for (const float value : back) nans += std::isnan(value) ? 1 : 0;
    EXPECT_TRUE(std::isnan(back[40]));
    EXPECT_EQ(nans, precision == Precision::bf16          ? 1
                    : precision == Precision::mxfp8_plain ? 32
                                                          : 128);
  }
}

}  // namespace
}  // namespace catamount
