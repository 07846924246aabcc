// Random numbers: known bits, and the moments of what is made of them.
#include "model/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace catamount::model {
namespace {

// splitmix64's first outputs from seed 1234567, as its author's C code gives them.
TEST(Random, BitsAreSplitmix64s) {
  Random random(1234567);
  for (const std::uint64_t expected :
       {6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL,
        4593380528125082431ULL, 16408922859458223821ULL}) {
    EXPECT_EQ(random.bits(), expected);
  }
}

TEST(Random, UniformFillsItsInterval) {
  Random random(3);
  double sum = 0;
  double lowest = 1;
  double highest = 0;
  for (int i = 0; i < 100000; ++i) {
    const double u = random.uniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u;
    lowest = std::fmin(lowest, u);
    highest = std::fmax(highest, u);
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
  EXPECT_LT(lowest, 1e-3);
  EXPECT_GT(highest, 0.999);
}

TEST(Random, BelowReachesEveryNumber) {
  Random random(4);
  int count[5] = {};
  for (int i = 0; i < 10000; ++i) ++count[random.below(5)];
  for (const int n : count) EXPECT_NEAR(n, 2000, 250);
}

TEST(Random, NormalHasTheMomentsOfANormal) {
  constexpr int kCount = 400000;
  Random random(5);
  double moments[5] = {};
  int beyond_two = 0;
  double before = 0;
  double product = 0;
  for (int i = 0; i < kCount; ++i) {
    const double v = random.normal();
    double power = 1;
    for (double& m : moments) {
      m += power / kCount;
      power *= v;
    }
    beyond_two += std::fabs(v) > 2 ? 1 : 0;
    product += v * before / kCount;
    before = v;
  }
  EXPECT_NEAR(moments[1], 0, 0.01);
  EXPECT_NEAR(moments[2], 1, 0.01);
  EXPECT_NEAR(moments[3], 0, 0.03);
  EXPECT_NEAR(moments[4], 2.9, 0.06);  // 3 - 6/5 / 12
  EXPECT_NEAR(beyond_two / static_cast<double>(kCount), 0.0455, 0.002);
  EXPECT_NEAR(product, 0, 0.01);  // neighbours know nothing of each other
}

TEST(Random, Bf16ValuesAreTheRoundedNormals) {
  Random a(9);
  Random b(9);
  for (const Bf16 v : a.normal_bf16(100, 0.25)) {
    EXPECT_EQ(v.bits, to_bf16(static_cast<float>(0.25 * b.normal())).bits);
  }
}

}  // namespace
}  // namespace catamount::model
