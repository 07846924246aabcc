// The error measures: a result that is wrong anywhere must show.
#include "oracle/compare.h"

#include <gtest/gtest.h>

#include <vector>

namespace catamount::oracle {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

using Values = std::vector<double>;

Comparison compared(const Values& result, const Values& reference) {
  return compare<double>(result, reference);
}

TEST(Compare, EqualIsZero) {
  const Comparison c = compared({1, -2, 0, 3}, {1, -2, 0, 3});
  EXPECT_EQ(c.relative_error, 0.0);
  EXPECT_EQ(c.max_abs_error, 0.0);
  EXPECT_EQ(c.nonfinite_mismatches, 0);
  EXPECT_EQ(c.missing, 0);
  EXPECT_TRUE(c.within(0.0));
}

// Difference (0.3, -0.4, 0), norm 0.5; reference (3, 0, 4), norm 5.
TEST(Compare, NormOfDifferenceOverNormOfReference) {
  const Comparison c = compared({3.3, -0.4, 4}, {3, 0, 4});
  EXPECT_NEAR(c.relative_error, 0.1, 1e-12);
  EXPECT_NEAR(c.max_abs_error, 0.4, 1e-12);
  EXPECT_TRUE(c.within(0.11));
  EXPECT_FALSE(c.within(0.09));
}

TEST(Compare, FloatsAreComparedAsDoubles) {
  const std::vector<float> result = {1.5F, 2.0F};
  const Values reference = {1.5, 2.5};
  EXPECT_EQ(compare<float>(result, reference).max_abs_error, 0.5);
}

TEST(Compare, ZeroReferenceWantsExactZeros) {
  EXPECT_TRUE(compared({0, -0.0}, {0, 0}).within(0.0));
  for (const double small : {1e-30, 1e-300, -5e-324}) {
    const Comparison c = compared({0, small}, {0, 0});
    EXPECT_EQ(c.relative_error, kInf) << small;
    EXPECT_FALSE(c.within(1e9)) << small;
  }
}

TEST(Compare, NonFinitePositionsMustCoincide) {
  const Comparison same = compared({1, kNan, kInf}, {1, kNan, kInf});
  EXPECT_EQ(same.nonfinite_mismatches, 0);
  EXPECT_EQ(same.relative_error, 0.0);
  EXPECT_TRUE(same.within(0.0));
  const Comparison c = compared({kNan, 2, kInf, 4}, {1, kNan, 3, 4});
  EXPECT_EQ(c.nonfinite_mismatches, 3);
  EXPECT_FALSE(c.within(kInf));
  EXPECT_EQ(c.relative_error, 0.0);  // of what is finite on both sides
}

TEST(Compare, AllNanIsNoAgreement) {
  EXPECT_FALSE(compared({kNan, kNan}, {1, 2}).within(kInf));
  EXPECT_FALSE(compared({kNan, kNan}, {0, 0}).within(kInf));
}

// A row of 16 in a hundred thousand that nobody wrote: too little for the norm.
TEST(Compare, SmallMissingTileShows) {
  Values reference(100000);
  for (std::size_t i = 0; i < reference.size(); ++i) reference[i] = i % 2 == 0 ? -1 : 3;
  Values result = reference;
  for (std::size_t i = 5000; i < 5016; ++i) result[i] = 0;
  const Comparison c = compared(result, reference);
  EXPECT_LT(c.relative_error, 0.02);
  EXPECT_EQ(c.missing, 8);  // the threes: above the root mean square
  EXPECT_FALSE(c.within(0.02));
}

TEST(Compare, SmallValuesMayRoundToZero) {
  const Comparison c = compared({0, 1, 1}, {1e-9, 1, 1});
  EXPECT_EQ(c.missing, 0);
  EXPECT_TRUE(c.within(1e-8));
}

TEST(Compare, SizesMustAgree) {
  EXPECT_EQ(compared({1, 2}, {1, 2, 3}).nonfinite_mismatches, 1);
  EXPECT_EQ(compared({1, 2, 3, 4}, {1, 2}).nonfinite_mismatches, 2);
  EXPECT_FALSE(compared({}, {0}).within(kInf));
  EXPECT_TRUE(compared({}, {}).within(0.0));
}

}  // namespace
}  // namespace catamount::oracle
