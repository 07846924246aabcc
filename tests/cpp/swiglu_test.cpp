// SwiGLU against its formula in double, its derivative against finite differences, clamps, NaN.
#include "core/swiglu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

namespace catamount {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Form {
  const char* name;
  Swiglu swiglu;
};

double reference(double gate, double up, const Swiglu& p) {
  const double g = std::min(gate, double{p.limit});
  const double u = std::max(std::min(up, double{p.limit}), -double{p.limit});
  return g / (1.0 + std::exp(-double{p.alpha} * g)) * (u + double{p.up_offset});
}

class SwigluForms : public testing::TestWithParam<Form> {};

constexpr float kGates[] = {-200.0F, -90.0F, -30.0F, -7.5F, -2.0F, -0.4F, -1e-6F, 0.0F,
                            1e-6F,   0.3F,   1.1F,   4.0F,  6.9F,  7.5F,  30.0F,  200.0F};
constexpr float kUps[] = {-50.0F, -7.5F, -6.9F, -1.0F, -1e-4F, 0.0F, 0.7F, 5.0F, 7.5F, 50.0F};

TEST_P(SwigluForms, IsTheFormula) {
  const Swiglu& p = GetParam().swiglu;
  for (const float gate : kGates) {
    for (const float up : kUps) {
      const double expected = reference(gate, up, p);
      EXPECT_NEAR(swiglu(gate, up, p), expected, std::fabs(expected) * 2e-5 + 1e-36)
          << gate << ", " << up;
    }
  }
}

TEST_P(SwigluForms, DerivativeIsTheFiniteDifference) {
  const Swiglu& p = GetParam().swiglu;
  const double step = 1e-5;
  const double d_h = -1.75;
  for (const float gate : kGates) {
    for (const float up : kUps) {
      const double d_gate =
          d_h * (reference(gate + step, up, p) - reference(gate - step, up, p)) / (2 * step);
      const double d_up =
          d_h * (reference(gate, up + step, p) - reference(gate, up - step, p)) / (2 * step);
      const SwigluGrad grad = swiglu_grad(gate, up, static_cast<float>(d_h), p);
      EXPECT_NEAR(grad.d_gate, d_gate, std::fabs(d_gate) * 1e-5 + 1e-6) << gate << ", " << up;
      EXPECT_NEAR(grad.d_up, d_up, std::fabs(d_up) * 1e-5 + 1e-6) << gate << ", " << up;
    }
  }
}

TEST_P(SwigluForms, GradRecomputesTheSameBits) {
  const Swiglu& p = GetParam().swiglu;
  for (const float gate : kGates) {
    for (const float up : kUps) {
      const float h = swiglu(gate, up, p);
      const float again = swiglu_grad(gate, up, 3.0F, p).h;
      EXPECT_EQ(std::memcmp(&h, &again, sizeof(h)), 0) << gate << ", " << up;
    }
  }
}

TEST_P(SwigluForms, NanInIsNanOut) {
  const Swiglu& p = GetParam().swiglu;
  for (const float value : {-9.0F, -1.0F, 0.5F, 9.0F}) {
    EXPECT_TRUE(std::isnan(swiglu(kNan, value, p)));
    EXPECT_TRUE(std::isnan(swiglu(value, kNan, p)));
    EXPECT_TRUE(std::isnan(swiglu_grad(kNan, value, 1.0F, p).d_gate));
    EXPECT_TRUE(std::isnan(swiglu_grad(kNan, value, 1.0F, p).d_up));
    EXPECT_TRUE(std::isnan(swiglu_grad(value, kNan, 1.0F, p).d_gate));
    // A clamped element too: its derivative is 0 only where d_h is a number.
    EXPECT_TRUE(std::isnan(swiglu_grad(value, -value, kNan, p).d_gate));
    EXPECT_TRUE(std::isnan(swiglu_grad(value, -value, kNan, p).d_up));
  }
}

TEST_P(SwigluForms, HugeInputsOverflowNothingInBetween) {
  const Swiglu& p = GetParam().swiglu;
  for (const float gate : {1e4F, 3e38F, -1e4F, -3e38F}) {
    const SwigluGrad grad = swiglu_grad(gate, 0.5F, 1.0F, p);
    EXPECT_TRUE(std::isfinite(grad.d_gate)) << gate;
    EXPECT_TRUE(std::isfinite(grad.d_up)) << gate;
    EXPECT_FALSE(std::isnan(swiglu(gate, 0.5F, p))) << gate;
  }
}

std::string form_name(const testing::TestParamInfo<Form>& form) { return form.param.name; }

INSTANTIATE_TEST_SUITE_P(Forms, SwigluForms,
                         testing::Values(Form{"plain", {}}, Form{"alpha", {1.702F, kInf, 0.0F}},
                                         Form{"limit", {1.0F, 7.0F, 0.0F}},
                                         Form{"gpt_oss", {1.702F, 7.0F, 1.0F}}),
                         form_name);

TEST(SwigluClamp, PassesTheGradientOnItsBoundsAndStopsItOutside) {
  const Swiglu p{1.702F, 7.0F, 1.0F};
  const float above = std::nextafter(7.0F, 8.0F);
  EXPECT_GT(swiglu_grad(7.0F, 1.0F, 1.0F, p).d_gate, 1.9F);
  EXPECT_EQ(swiglu_grad(above, 1.0F, 1.0F, p).d_gate, 0.0F);
  EXPECT_GT(swiglu_grad(above, 1.0F, 1.0F, p).d_up, 6.9F);
  EXPECT_NE(swiglu_grad(-12.0F, 1.0F, 1.0F, p).d_gate, 0.0F);  // the gate has no lower bound
  for (const float sign : {1.0F, -1.0F}) {
    EXPECT_GT(swiglu_grad(2.0F, sign * 7.0F, 1.0F, p).d_up, 1.0F);
    EXPECT_EQ(swiglu_grad(2.0F, sign * above, 1.0F, p).d_up, 0.0F);
    EXPECT_EQ(swiglu(2.0F, sign * above, p), swiglu(2.0F, sign * 7.0F, p));
  }
}

TEST(SwigluSigmoid, ValueAndComplementAreBothAccurate) {
  for (float z = -87.0F; z <= 87.0F; z += 0.37F) {
    const Sigmoid s = sigmoid(z);
    const double value = 1.0 / (1.0 + std::exp(-double{z}));
    const double complement = 1.0 / (1.0 + std::exp(double{z}));
    EXPECT_NEAR(s.value, value, value * 3e-7) << z;
    EXPECT_NEAR(s.complement, complement, complement * 3e-7) << z;
  }
}

TEST(SwigluKept, RoundsToBf16WithoutCrossingTheLimit) {
  const float limits[] = {1.0F, 7.0F, 1.3F, 0.1F};
  for (const float limit : limits) {
    for (int i = -4000; i <= 4000; ++i) {
      for (const float sign : {1.0F, -1.0F}) {
        const float value = sign * (limit + static_cast<float>(i) * limit * 1e-5F);
        const float kept = to_float(kept_pre_activation(value, limit));
        EXPECT_EQ(std::fabs(kept) > limit, std::fabs(value) > limit) << value << " " << limit;
        EXPECT_NEAR(kept, value, std::fabs(value) * 0x1p-7)
            << limit;  // at worst the next neighbour
      }
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {0.0F, -0.0F, 1.234F, -5e30F, infinity, -infinity}) {
    EXPECT_EQ(kept_pre_activation(value, infinity).bits, to_bf16(value).bits);
  }
  EXPECT_TRUE(std::isnan(to_float(kept_pre_activation(std::nanf(""), 7.0F))));
}

}  // namespace
}  // namespace catamount
