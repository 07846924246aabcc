// BF16 conversions: every code, every tie and its neighbours, NaN and Inf, CUDA's own conversion.
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#if __has_include(<cuda_bf16.h>)
#include <cuda_bf16.h>
#define HAVE_CUDA_BF16 1
#else
#define HAVE_CUDA_BF16 0
#endif

namespace catamount {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Bf16 code(int bits) { return {static_cast<std::uint16_t>(bits)}; }

TEST(Bf16, EveryCodeHasItsValueAndComesBack) {
  for (int bits = 0; bits <= 0xFFFF; ++bits) {
    const float value = to_float(code(bits));
    const int exponent = (bits >> 7) & 0xFF;
    const int mantissa = bits & 0x7F;
    if (exponent == 0xFF && mantissa != 0) {
      ASSERT_TRUE(std::isnan(value)) << std::hex << bits;
      ASSERT_EQ(to_bf16(value).bits, 0x7FFF) << std::hex << bits;
      continue;
    }
    const double magnitude = exponent == 0xFF ? HUGE_VAL
                             : exponent == 0  ? std::ldexp(mantissa, 1 - 127 - 7)
                                              : std::ldexp(128 + mantissa, exponent - 127 - 7);
    ASSERT_EQ(value, (bits & 0x8000) != 0 ? -magnitude : magnitude) << std::hex << bits;
    ASSERT_EQ(to_bf16(value).bits, bits) << std::hex << bits;
  }
}

// Between neighbours: the midpoint goes to the even one, one FP32 step aside to the nearer one. The
// midpoint above the largest finite value goes to Inf.
TEST(Bf16, TiesGoToEvenAndTheirNeighboursToTheNearest) {
  for (int sign = 0; sign <= 0x8000; sign += 0x8000) {
    for (int bits = 0; bits < 0x7F80; ++bits) {
      const std::uint32_t middle = static_cast<std::uint32_t>(bits | sign) << 16 | 0x8000U;
      const int even = bits % 2 == 0 ? bits : bits + 1;
      ASSERT_EQ(to_bf16(float_from_bits(middle)).bits, even | sign) << std::hex << bits;
      ASSERT_EQ(to_bf16(float_from_bits(middle - 1)).bits, bits | sign) << std::hex << bits;
      ASSERT_EQ(to_bf16(float_from_bits(middle + 1)).bits, (bits + 1) | sign) << std::hex << bits;
    }
  }
}

TEST(Bf16, NanNeverTurnsIntoInf) {
  for (const std::uint32_t bits : {0x7F80'0001U, 0x7F80'FFFFU, 0x7FFF'FFFFU, 0xFF80'0001U,
                                   0xFFFF'FFFFU, 0x7FC0'0000U, 0x7FA0'0000U}) {
    EXPECT_EQ(to_bf16(float_from_bits(bits)).bits, 0x7FFF) << std::hex << bits;
  }
  EXPECT_EQ(to_bf16(kInf).bits, 0x7F80);
  EXPECT_EQ(to_bf16(-kInf).bits, 0xFF80);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(round_to_bf16(kNan)));
}

TEST(Bf16, RoundedValueIsAFixedPoint) {
  EXPECT_EQ(round_to_bf16(1.0F + 0x1p-8F), 1.0F);
  EXPECT_EQ(round_to_bf16(1.0F + 0x1.8p-7F), 1.0F + 0x1p-6F);
  EXPECT_TRUE(std::signbit(round_to_bf16(-0.0F)));
}

TEST(Bf16, RowsConvertAsSingleValuesDoAndNothingElseIsWritten) {
  for (const int n : {0, 1, 7, 8, 31, 64, 129}) {
    std::vector<float> in;
    for (int i = 0; i < n; ++i) in.push_back(i % 11 == 5 ? kNan : std::sin(0.7F * i) * 1e3F);
    const auto size = static_cast<std::size_t>(n);
    std::vector<Bf16> rounded(size + 1, code(0x1234));
    std::vector<float> back(size + 1, 7.0F);
    to_bf16(in.data(), n, rounded.data());
    to_float(rounded.data(), n, back.data());
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(rounded[i].bits, to_bf16(in[i]).bits);
      ASSERT_EQ(float_bits(back[i]), float_bits(round_to_bf16(in[i])));
    }
    EXPECT_EQ(rounded[size].bits, 0x1234);
    EXPECT_EQ(back[size], 7.0F);
  }
}

TEST(Bf16, SameBitsAsCuda) {
#if HAVE_CUDA_BF16
  for (std::uint64_t bits = 0; bits < (1ULL << 32); bits += 2039) {
    const float value = float_from_bits(static_cast<std::uint32_t>(bits));
    const __nv_bfloat16_raw expected = __float2bfloat16_rn(value);
    ASSERT_EQ(to_bf16(value).bits, expected.x) << std::hex << bits;
  }
#else
  GTEST_SKIP() << "cuda_bf16.h is not there";
#endif
}

}  // namespace
}  // namespace catamount
