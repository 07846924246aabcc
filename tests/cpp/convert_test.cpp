// Conversions, against values computed another way: every F16 and E2M1 code, FP8 tiles that do not
// divide the matrix, MXFP4's order of halves and its special scales.
#include "io/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/fp8.h"
#include "temp_dir.h"

namespace catamount::io {
namespace {

using test::expect_error;

template <class T>
FileTensor tensor(FileDType dtype, std::vector<std::int64_t> shape, const std::vector<T>& values) {
  return {dtype, std::move(shape), std::as_bytes(std::span(values))};
}

TEST(Convert, EveryF16Code) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const int exponent = static_cast<int>(code >> 10 & 31U);
    const double fraction = (code & 1023U) / 1024.0;
    const double sign = (code & 0x8000U) != 0 ? -1 : 1;
    const float got = f16_to_float(static_cast<std::uint16_t>(code));
    if (exponent == 31 && fraction > 0) {
      EXPECT_TRUE(std::isnan(got)) << code;
      continue;
    }
    const double magnitude = exponent == 31  ? std::numeric_limits<double>::infinity()
                             : exponent == 0 ? std::ldexp(fraction, -14)
                                             : std::ldexp(1 + fraction, exponent - 15);
    EXPECT_EQ(got, sign * magnitude) << code;
    EXPECT_EQ(std::signbit(got), sign < 0) << code;
  }
}

TEST(Convert, EveryE2m1Code) {
  for (std::uint8_t code = 0; code < 16; ++code) {
    const int exponent = code >> 1 & 3;
    const double fraction = (code & 1) / 2.0;
    const double magnitude = exponent == 0 ? fraction : std::ldexp(1 + fraction, exponent - 1);
    EXPECT_EQ(e2m1_to_float(code), code < 8 ? magnitude : -magnitude) << int{code};
    EXPECT_EQ(std::signbit(e2m1_to_float(code)), code >= 8) << int{code};
  }
}

TEST(Convert, PlainFloatsFromUnalignedBytes) {
  const std::vector<double> f64 = {1.0, -3.140625, 1e300};
  const std::vector<float> f32 = {1.0F, -3.140625F, 1.00390625F};  // the last: a tie in BF16
  const std::vector<std::uint16_t> bf16 = {0x3F80, 0xC049, 0x7FC1};
  std::vector<float> out(3);
  std::vector<Bf16> out16(3);
  tensor_to_f32(tensor(FileDType::f64, {3}, f64), "t", out);
  EXPECT_EQ(out[1], -3.140625F);
  EXPECT_TRUE(std::isinf(out[2]));
  tensor_to_bf16(tensor(FileDType::f32, {3}, f32), "t", out16);
  EXPECT_EQ(out16[0].bits, 0x3F80);
  EXPECT_EQ(out16[2].bits, 0x3F80);
  tensor_to_bf16(tensor(FileDType::bf16, {3}, bf16), "t", out16);
  EXPECT_EQ(out16[2].bits, 0x7FC1);

  std::string bytes = "x" + std::string(12, '\0');
  std::memcpy(bytes.data() + 1, f32.data(), 12);
  tensor_to_f32({FileDType::f32, {3, 1}, test::as_bytes(bytes).subspan(1)}, "t", out);
  EXPECT_EQ(out, f32);
}

TEST(Convert, OtherDtypesAndSizesAreErrors) {
  const std::vector<std::int32_t> ints(3);
  std::vector<float> out(3);
  std::vector<Bf16> out16(4);
  expect_error(ErrorCode::io, {"who", "I32[3]"},
               [&] { tensor_to_f32(tensor(FileDType::i32, {3}, ints), "who", out); });
  expect_error(ErrorCode::invalid_argument, {"F32[3]", "4 values"},
               [&] { tensor_to_bf16(tensor(FileDType::f32, {3}, ints), "who", out16); });
  EXPECT_FALSE(is_plain_float(FileDType::f8_e4m3));
  EXPECT_TRUE(is_plain_float(FileDType::f16));
}

TEST(Convert, Fp8TilesThatDoNotDivideTheMatrix) {
  constexpr std::int64_t kRows = 5, kCols = 7;
  const BlockSize block{2, 3};
  std::vector<std::uint8_t> codes(kRows * kCols);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(7 * i + 1);
  std::vector<float> scales(3 * 3);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.37F * static_cast<float>(i + 1);
  std::vector<Bf16> out(codes.size());
  fp8_blocks_to_bf16(tensor(FileDType::f8_e4m3, {kRows, kCols}, codes),
                     tensor(FileDType::f32, {3, 3}, scales), block, "t", out);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 0; c < kCols; ++c) {
      const auto i = static_cast<std::size_t>(r * kCols + c);
      const float scale = scales[static_cast<std::size_t>(r / 2 * 3 + c / 3)];
      EXPECT_EQ(out[i].bits, to_bf16(e4m3_to_float(codes[i]) * scale).bits) << r << ", " << c;
    }
  }
  for (const auto& shape : {std::vector<std::int64_t>{9}, {3, 2}, {2, 3}, {1, 9}}) {
    expect_error(ErrorCode::io, {"who", "F32[3, 3]", "2 x 3"}, [&] {
      fp8_blocks_to_bf16(tensor(FileDType::f8_e4m3, {kRows, kCols}, codes),
                         tensor(FileDType::f32, shape, scales), block, "who", out);
    });
  }
  expect_error(ErrorCode::io, {"two dimensions"}, [&] {
    fp8_blocks_to_bf16(tensor(FileDType::f8_e4m3, {35}, codes),
                       tensor(FileDType::f32, {3, 3}, scales), block, "who", out);
  });
}

TEST(Convert, Mxfp4LowHalfFirstAndSpecialScales) {
  std::vector<std::uint8_t> blocks(4 * 16, 0x21);  // low half 1 = 0.5, high half 2 = 1
  blocks[16] = 0xF7;                               // 6, then -6
  const std::vector<std::uint8_t> scales = {127, 130, 0, 255};
  std::vector<Bf16> out(4 * 32);
  mxfp4_to_bf16(tensor(FileDType::u8, {2, 2, 16}, blocks), tensor(FileDType::u8, {2, 2}, scales),
                "t", out);
  EXPECT_EQ(to_float(out[0]), 0.5F);
  EXPECT_EQ(to_float(out[1]), 1.0F);
  EXPECT_EQ(to_float(out[31]), 1.0F);
  EXPECT_EQ(to_float(out[32]), 48.0F);
  EXPECT_EQ(to_float(out[33]), -48.0F);
  EXPECT_EQ(to_float(out[34]), 4.0F);
  EXPECT_EQ(to_float(out[65]), std::ldexp(1.0F, -127));
  EXPECT_TRUE(std::isnan(to_float(out[96])));
  expect_error(ErrorCode::io, {"who", "U8[2, 2, 16]", "U8[4]"}, [&] {
    mxfp4_to_bf16(tensor(FileDType::u8, {2, 2, 16}, blocks), tensor(FileDType::u8, {4}, scales),
                  "who", out);
  });
}

}  // namespace
}  // namespace catamount::io
