// E4M3 and E8M0: every code, every rounding tie and its neighbours, saturation, NaN, Inf, and
// CUDA's own conversions where the toolkit is there.
#include "core/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "fp8_reference.h"

namespace catamount {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kFloatMax = std::numeric_limits<float>::max();

std::uint8_t byte(int code) { return static_cast<std::uint8_t>(code); }

TEST(E4m3, EveryCodeHasItsValueAndComesBack) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(byte(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_EQ(float_to_e4m3(value), 0x7F) << code;
      continue;
    }
    EXPECT_EQ(value, test::e4m3_value(code)) << code;
    EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
    EXPECT_EQ(float_to_e4m3(value), code);
  }
  EXPECT_EQ(e4m3_to_float(0x7E), 448.0F);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9F);
  EXPECT_EQ(e4m3_to_float(0x08), 0x1p-6F);
}

TEST(E4m3, TiesGoToEvenAndTheirNeighboursToTheNearest) {
  for (int code = 0; code < 0x7E; ++code) {
    for (const int sign : {0, 0x80}) {
      const double factor = sign != 0 ? -1.0 : 1.0;
      const auto middle =
          static_cast<float>(factor * (test::e4m3_value(code) + test::e4m3_value(code + 1)) / 2.0);
      const int even = code % 2 == 0 ? code : code + 1;
      EXPECT_EQ(float_to_e4m3(middle), even | sign) << middle;
      EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 0.0F)), code | sign) << middle;
      EXPECT_EQ(float_to_e4m3(std::nextafter(middle, middle * kInf)), (code + 1) | sign) << middle;
    }
  }
}

TEST(E4m3, AnyValueGoesToTheNearestCode) {
  for (std::uint64_t bits = 0; bits < (1ULL << 32); bits += 131'071) {
    const float value = float_from_bits(static_cast<std::uint32_t>(bits));
    ASSERT_EQ(float_to_e4m3(value), test::nearest_e4m3(value)) << value;
  }
}

TEST(E4m3, Saturates) {
  for (const float value :
       {448.0F, 449.0F, 463.9F, 464.0F, 465.0F, 512.0F, 1e30F, kFloatMax, kInf}) {
    EXPECT_EQ(float_to_e4m3(value), 0x7E) << value;
    EXPECT_EQ(float_to_e4m3(-value), 0xFE) << value;
  }
}

TEST(E4m3, ZerosKeepTheirSignAndTinyValuesBecomeThem) {
  for (const float value : {0.0F, 0x1p-149F, 0x1p-126F, 0x1p-11F, 0x1p-10F}) {
    EXPECT_EQ(float_to_e4m3(value), 0x00) << value;
    EXPECT_EQ(float_to_e4m3(-value), 0x80) << value;
  }
}

TEST(E4m3, NanOfAnyPayloadIsNan) {
  for (const std::uint32_t bits :
       {0x7F80'0001U, 0x7FC0'0000U, 0x7FFF'FFFFU, 0xFF80'0001U, 0xFFFF'FFFFU}) {
    EXPECT_EQ(float_to_e4m3(float_from_bits(bits)), kE4m3Nan) << std::hex << bits;
  }
}

TEST(E8m0, EveryCodeIsItsPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(e8m0_to_float(byte(code)), std::ldexp(1.0, code - 127)) << code;
    EXPECT_EQ(exponent_to_e8m0(code - 127), code);
  }
  EXPECT_TRUE(std::isnan(e8m0_to_float(kE8m0Nan)));
}

TEST(E8m0, ExponentsOutsideTheRangeTakeTheBound) {
  EXPECT_EQ(exponent_to_e8m0(-128), 0);
  EXPECT_EQ(exponent_to_e8m0(-100'000), 0);
  EXPECT_EQ(exponent_to_e8m0(128), 254);
  EXPECT_EQ(exponent_to_e8m0(100'000), 254);
}

// Every E4M3 code times every scale: FP32 holds the exact product, where it is in FP32's range at
// all.
TEST(Mxfp8Value, IsTheExactProduct) {
  for (int scale = 0; scale < 255; ++scale) {
    for (int code = 0; code < 256; ++code) {
      const float product = e4m3_to_float(byte(code)) * e8m0_to_float(byte(scale));
      if ((code & 0x7F) == 0x7F) {
        ASSERT_TRUE(std::isnan(product));
        continue;
      }
      const double exact = std::ldexp(test::e4m3_value(code), scale - 127);
      const double expected = std::fabs(exact) > kFloatMax ? std::copysign(HUGE_VAL, exact) : exact;
      ASSERT_EQ(product, expected) << code << " with scale " << scale;
      // What the BF16 tensor cores are fed.
      if (scale >= 3) {
        ASSERT_EQ(round_to_bf16(product), expected) << code << " with scale " << scale;
      }
    }
  }
}

TEST(Mxfp8Value, NanScaleMakesEveryCodeNan) {
  for (int code = 0; code < 256; ++code) {
    EXPECT_TRUE(std::isnan(e4m3_to_float(byte(code)) * e8m0_to_float(kE8m0Nan))) << code;
  }
}

#if HAVE_CUDA_FP8

TEST(Fp8, SameBitsAsCuda) {
  for (std::uint64_t bits = 0; bits < (1ULL << 32); bits += 1021) {
    const float value = float_from_bits(static_cast<std::uint32_t>(bits));
    ASSERT_EQ(float_to_e4m3(value), __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3))
        << std::hex << bits;
  }
}

TEST(Fp8, DecodesAsCudaDoes) {
  for (int code = 0; code < 256; ++code) {
    const __half_raw half = __nv_cvt_fp8_to_halfraw(byte(code), __NV_E4M3);
    const float expected = __half2float(__half(half));
    const float value = e4m3_to_float(byte(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(value, expected) << code;
      EXPECT_EQ(std::signbit(value), std::signbit(expected)) << code;
    }
    const __nv_bfloat16_raw scale = __nv_cvt_e8m0_to_bf16raw(byte(code));
    const float expected_scale = to_float(Bf16{scale.x});
    if (std::isnan(expected_scale)) {
      EXPECT_TRUE(std::isnan(e8m0_to_float(byte(code)))) << code;
    } else {
      EXPECT_EQ(e8m0_to_float(byte(code)), expected_scale) << code;
    }
  }
}

#else

TEST(Fp8, SameBitsAsCuda) { GTEST_SKIP() << "cuda_fp8.h is not there"; }

#endif

}  // namespace
}  // namespace catamount
