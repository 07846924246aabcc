// How the FP8 precisions choose scales: both rules of MXFP8, zero, tiny, huge, NaN and Inf.
// mxfp8_matrix_test.cpp has the rows and weights.
#include "core/mxfp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "fp8_reference.h"

namespace catamount {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kFloatMax = std::numeric_limits<float>::max();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

int scale_of(float amax, ScaleRule rule) { return mx_scale(amax_bits(0, amax), rule); }

TEST(MxScale, EveryExponentAndTheEdgesOfBothRules) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    for (const double mantissa : {1.0, 1.5, 1.75, 1.99}) {
      const auto at = static_cast<float>(std::ldexp(mantissa, exponent));
      for (const float amax : {std::nextafter(at, 0.0F), at, std::nextafter(at, kInf)}) {
        ASSERT_EQ(scale_of(amax, ScaleRule::ceil), test::ceil_scale_exponent(amax) + 127) << amax;
        ASSERT_EQ(scale_of(amax, ScaleRule::floor), test::floor_scale_exponent(amax) + 127) << amax;
      }
    }
  }
}

TEST(MxScale, RulesDifferWhereFloorSaturates) {
  EXPECT_EQ(scale_of(448.0F, ScaleRule::ceil), 127);
  EXPECT_EQ(scale_of(448.0F, ScaleRule::floor), 127);
  EXPECT_EQ(scale_of(448.1F, ScaleRule::ceil), 128);
  EXPECT_EQ(scale_of(448.1F, ScaleRule::floor), 127);
  EXPECT_EQ(scale_of(512.0F, ScaleRule::floor), 128);
}

TEST(MxScale, ZeroNanInf) {
  for (const ScaleRule rule : {ScaleRule::ceil, ScaleRule::floor}) {
    EXPECT_EQ(scale_of(0.0F, rule), 0);
    EXPECT_EQ(scale_of(-0.0F, rule), 0);
    EXPECT_EQ(scale_of(kSmallest, rule), 0);
    EXPECT_EQ(scale_of(kFloatMax, rule), 246);
    EXPECT_EQ(scale_of(kInf, rule), kE8m0Nan);
    EXPECT_EQ(scale_of(-kInf, rule), kE8m0Nan);
    EXPECT_EQ(scale_of(kNan, rule), kE8m0Nan);
    EXPECT_EQ(scale_of(-kNan, rule), kE8m0Nan);
  }
}

TEST(MxScale, InverseIsExactForEveryChosenScale) {
  for (int scale = 0; scale <= 246; ++scale) {
    const auto stored = static_cast<std::uint8_t>(scale);
    EXPECT_EQ(MxScale::inverse(stored), std::ldexp(1.0, 127 - scale));
  }
  EXPECT_TRUE(std::isnan(MxScale::inverse(kE8m0Nan)));
}

TEST(BlockScale, ZeroTinyHugeNanInf) {
  EXPECT_EQ(block_scale(amax_bits(0, 448.0F)), 1.0F);
  EXPECT_EQ(block_scale(amax_bits(0, -3.0F)), 3.0F / 448.0F);
  EXPECT_EQ(block_scale(0), 0x1p-126F);
  EXPECT_EQ(block_scale(amax_bits(0, kSmallest)), 0x1p-126F);
  EXPECT_LT(block_scale(amax_bits(0, kFloatMax)) * 448.0F, kInf);
  EXPECT_TRUE(std::isnan(block_scale(amax_bits(0, kInf))));
  EXPECT_TRUE(std::isnan(block_scale(amax_bits(0, kNan))));
}

TEST(MxScale, CeilIsCudasRoundingUp) {
#if HAVE_CUDA_FP8
  // Division by 448 is exact enough above FP32's subnormal range, and 246 is our bound, not CUDA's.
  for (std::uint32_t bits = float_bits(0x1p-110F); bits < float_bits(0x1.Cp127F); bits += 4093) {
    const float amax = float_from_bits(bits);
    ASSERT_EQ(mx_scale(bits, ScaleRule::ceil),
              __nv_cvt_float_to_e8m0(amax / 448.0F, __NV_SATFINITE, cudaRoundPosInf))
        << amax;
    ASSERT_EQ(mx_scale(bits, ScaleRule::floor),
              __nv_cvt_float_to_e8m0(amax / 256.0F, __NV_SATFINITE, cudaRoundZero))
        << amax;
  }
  EXPECT_EQ(mx_scale(0, ScaleRule::ceil),
            __nv_cvt_float_to_e8m0(0.0F, __NV_SATFINITE, cudaRoundPosInf));
  EXPECT_EQ(scale_of(kNan, ScaleRule::ceil),
            __nv_cvt_float_to_e8m0(kNan, __NV_SATFINITE, cudaRoundPosInf));
#else
  GTEST_SKIP() << "cuda_fp8.h is not there";
#endif
}

}  // namespace
}  // namespace catamount
