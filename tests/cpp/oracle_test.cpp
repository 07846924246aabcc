// The oracle: a layer computed by hand, every gradient against finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "oracle_cases.h"

namespace catamount::oracle {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double loss(const Problem& p, const Values& dy) {
  const Values out = forward(p);
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dy[i];
  return sum;
}

std::vector<Form> forms() {
  std::vector<Form> all;
  for (const RouterWeight weight : {RouterWeight::in_combine, RouterWeight::before_down}) {
    const std::string suffix = weight == RouterWeight::in_combine ? "" : "_before_down";
    // The limit is one that many of these pre-activations pass.
    const Swiglu gpt_oss{1.702F, 1.5F, 1.0F};
    all.push_back({"plain" + suffix, false, false, {}, weight});
    all.push_back({"biases" + suffix, true, false, {}, weight});
    all.push_back({"shared" + suffix, false, true, {}, weight});
    all.push_back({"gpt_oss" + suffix, true, false, gpt_oss, weight});
    all.push_back({"everything" + suffix, true, true, gpt_oss, weight});
  }
  return all;
}

class OracleForm : public testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(Forms, OracleForm, testing::ValuesIn(forms()),
                         [](const auto& test) { return test.param.name; });

TEST_P(OracleForm, GradientsAreFiniteDifferences) {
  Problem p = small_problem(GetParam());
  const Values dy = small_dy(p);
  const Gradients g = backward(p, dy);
  struct Pair {
    const char* name;
    Values* values;
    const Values* gradient;
  };
  const std::vector<Pair> pairs = {
      {"x", &p.x, &g.dx},
      {"topk_weights", &p.topk_weights, &g.d_topk_weights},
      {"gate", &p.experts.gate, &g.experts.gate},
      {"up", &p.experts.up, &g.experts.up},
      {"down", &p.experts.down, &g.experts.down},
      {"bias_gate", &p.experts.bias_gate, &g.experts.bias_gate},
      {"bias_up", &p.experts.bias_up, &g.experts.bias_up},
      {"bias_down", &p.experts.bias_down, &g.experts.bias_down},
      {"shared_gate", &p.shared.gate, &g.shared.gate},
      {"shared_up", &p.shared.up, &g.shared.up},
      {"shared_down", &p.shared.down, &g.shared.down},
  };
  constexpr double kStep = 1e-5;
  for (const Pair& pair : pairs) {
    ASSERT_EQ(pair.values->size(), pair.gradient->size()) << pair.name;
    for (std::size_t i = 0; i < pair.values->size(); ++i) {
      double& value = (*pair.values)[i];
      const double before = value;
      value = before + kStep;
      const double above = loss(p, dy);
      value = before - kStep;
      const double below = loss(p, dy);
      value = before;
      const double expected = (above - below) / (2 * kStep);
      EXPECT_NEAR((*pair.gradient)[i], expected, 1e-6 * (1 + std::fabs(expected)))
          << pair.name << " " << i;
    }
  }
}

TEST_P(OracleForm, RepeatsToTheBit) {
  const Problem p = small_problem(GetParam());
  EXPECT_EQ(forward(p), forward(p));
  const Gradients a = backward(p, small_dy(p));
  const Gradients b = backward(p, small_dy(p));
  EXPECT_EQ(a.dx, b.dx);
  EXPECT_EQ(a.experts.gate, b.experts.gate);
  EXPECT_EQ(a.experts.down, b.experts.down);
}

// The forms above would prove little if the clamp, or the weight's position, did not matter.
TEST(Oracle, ClampIsReached) {
  const Problem p = small_problem({"", true, true, {1.702F, 1.5F, 1.0F}});
  Problem open = p;
  open.swiglu.limit = std::numeric_limits<float>::infinity();
  EXPECT_GT(std::fabs(loss(p, small_dy(p)) - loss(open, small_dy(p))), 0.1);
}

// One token (1, 2) at two experts of width 1, L = ln 3:
//   expert 0: gate L, sigmoid 3/4; up 4; h = 3 L; y = 3 L (1, -2); router weight 1/2
//   expert 1: gate -L, sigmoid 1/4; up 3; h = -3/4 L; y = -3/4 L (2, 3); router weight 1/4
// and backward from dy = (2, -1), with h's derivatives (s + g s (1 - s)) up and g s:
//   expert 0: dh = 4; d_gate = 1/2 4 (3/4 + 3/16 L) 4 = 6 + 3/2 L; d_up = 1/2 4 3/4 L = 3/2 L
//   expert 1: dh = 1; d_gate = 1/4 (1/4 - 3/16 L) 3 = 3/16 - 9/64 L; d_up = 1/4 (-1/4 L)
TEST(Oracle, AgreesWithAComputationByHand) {
  const double l = std::log(3.0);
  Problem p;
  p.hidden = 2;
  p.topk = 2;
  p.tokens = 1;
  p.x = {1, 2};
  p.topk_idx = {0, 1};
  p.topk_weights = {0.5, 0.25};
  p.experts.count = 2;
  p.experts.width = 1;
  p.experts.gate = {l, 0, 0, -l / 2};
  p.experts.up = {0, 2, 1, 1};
  p.experts.down = {1, -2, 2, 3};
  const Gradients g = backward(p, {2, -1});
  const double d_gate0 = 6 + 1.5 * l;
  const double d_gate1 = 3.0 / 16 - 9.0 / 64 * l;
  const auto expect = [](const Values& result, const Values& expected) {
    ASSERT_EQ(result.size(), expected.size());
    for (std::size_t i = 0; i < result.size(); ++i) EXPECT_NEAR(result[i], expected[i], 1e-14) << i;
  };
  expect(forward(p), {1.125 * l, -3.5625 * l});
  expect(g.d_topk_weights, {12 * l, -0.75 * l});
  expect(g.experts.gate, {d_gate0, 2 * d_gate0, d_gate1, 2 * d_gate1});
  expect(g.experts.up, {1.5 * l, 3 * l, -l / 16, -l / 8});
  expect(g.experts.down, {3 * l, -1.5 * l, -0.375 * l, 0.1875 * l});
  expect(g.dx, {d_gate0 * l - l / 16, 3 * l - d_gate1 * l / 2 - l / 16});
}

// gpt-oss form, x = 1, alpha = ln(3) / 2, limit 2, up_offset 1:
//   expert 0: gate 2 + 1/2, clamped to 2, sigmoid 3/4; up -4 + 1, clamped to -2; h = 2 3/4 (-2 +
//   1);
//             y = 4 h + 1 = -5; router weight 1/2
//   expert 1: gate -4, which no limit clamps, sigmoid 1/10; up 1; h = -0.4 (1 + 1); y = h
//   shared:   gate 1, sigmoid sqrt(3) / (1 + sqrt(3)); up 3, clamped to 2; h = sigmoid (2 + 1)
TEST(Oracle, AgreesWithClampsAndBiasesByHand) {
  for (const RouterWeight weight : {RouterWeight::in_combine, RouterWeight::before_down}) {
    Problem p;
    p.hidden = 1;
    p.topk = 3;
    p.tokens = 1;
    p.x = {1};
    p.topk_idx = {0, -1, 1};
    p.topk_weights = {0.5, 100, 1};
    p.experts = {2, 1, {2, -4}, {-4, 1}, {4, 1}, {0.5, 0}, {1, 0}, {1, 0}, {}, {}, {}};
    p.shared = {1, 1, {1}, {3}, {1}, {}, {}, {}, {}, {}, {}};
    p.swiglu = {static_cast<float>(std::log(3.0) / 2), 2.0F, 1.0F};
    p.router_weight = weight;
    const double root = std::sqrt(3.0);
    const double expected = -2.5 - 0.8 + 3 * root / (1 + root);
    EXPECT_NEAR(forward(p)[0], expected, 1e-6);  // alpha is an FP32 number
  }
}

TEST(Oracle, ASlotNamedTwiceCountsTwice) {
  Problem twice = small_problem({"", true, true, {}});
  twice.topk_idx = {1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0};
  Problem once = twice;
  for (std::size_t i = 0; i < once.topk_idx.size(); i += 3) {
    once.topk_weights[i] += once.topk_weights[i + 1];
    once.topk_idx[i + 1] = -1;
    once.topk_weights[i + 1] = kNan;  // a masked slot's weight is never looked at
  }
  const Values a = forward(twice);
  const Values b = forward(once);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
  const Gradients ga = backward(twice, small_dy(twice));
  const Gradients gb = backward(once, small_dy(once));
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(ga.dx[i], gb.dx[i], 1e-12);
  for (std::size_t i = 0; i < ga.d_topk_weights.size(); i += 3) {
    EXPECT_EQ(ga.d_topk_weights[i], ga.d_topk_weights[i + 1]);
    EXPECT_EQ(gb.d_topk_weights[i + 1], 0.0);
  }
}

TEST(Oracle, NanStaysInItsToken) {
  const Form form{"", true, true, {1.702F, 1.5F, 1.0F}};
  const Values dy = small_dy(small_problem(form));
  for (const bool in_weight : {false, true}) {
    Problem p = small_problem(form);
    const std::int64_t token = 3;
    (in_weight ? p.topk_weights[token * 3 + 1] : p.x[token * 6 + 2]) = kNan;
    const Values out = forward(p);
    const Gradients g = backward(p, dy);
    for (std::int64_t i = 0; i < p.tokens * p.hidden; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(std::isnan(out[at]), i / p.hidden == token) << in_weight << " " << i;
      EXPECT_EQ(std::isnan(g.dx[at]), i / p.hidden == token) << in_weight << " " << i;
    }
    for (std::int64_t i = 0; i < p.tokens * p.topk; ++i) {
      EXPECT_EQ(std::isnan(g.d_topk_weights[static_cast<std::size_t>(i)]),
                !in_weight && i / p.topk == token);
    }
    // Expert 3 saw the token, expert 1 did not.
    EXPECT_TRUE(std::isnan(g.experts.gate[3 * 5 * 6]));
    EXPECT_FALSE(std::isnan(g.experts.gate[1 * 5 * 6]));
  }
}

TEST(Oracle, DgradMultipliesWithItsOwnWeights) {
  const Problem p = small_problem({"", false, true, {}});
  const Values dy = small_dy(p);
  const Gradients plain = backward(p, dy);
  Problem doubled = p;
  for (Experts* e : {&doubled.experts, &doubled.shared}) {
    e->gate_dgrad = e->gate;
    e->up_dgrad = e->up;
    for (Values* w : {&e->gate_dgrad, &e->up_dgrad}) {
      for (double& v : *w) v *= 2;
    }
  }
  const Gradients g = backward(doubled, dy);
  for (std::size_t i = 0; i < g.dx.size(); ++i) EXPECT_EQ(g.dx[i], 2 * plain.dx[i]);
  EXPECT_EQ(g.experts.gate, plain.experts.gate);
  EXPECT_EQ(g.d_topk_weights, plain.d_topk_weights);
  EXPECT_EQ(forward(doubled), forward(p));

  Problem no_dh = p;
  no_dh.experts.down_dgrad.assign(p.experts.down.size(), 0.0);
  const Gradients z = backward(no_dh, dy);
  EXPECT_EQ(z.experts.gate, Values(p.experts.gate.size(), 0.0));
  EXPECT_EQ(z.d_topk_weights, Values(p.topk_weights.size(), 0.0));
  EXPECT_EQ(z.experts.down, plain.experts.down);
  EXPECT_EQ(z.shared.gate, plain.shared.gate);
}

TEST(Oracle, RefusesWhatDoesNotFit) {
  const auto expect_error = [](const char* text, auto change) {
    Problem p = small_problem({"", true, true, {}});
    change(p);
    try {
      forward(p);
      ADD_FAILURE() << "expected an error with " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  expect_error("x: expected 30 values, got 29", [](Problem& p) { p.x.pop_back(); });
  expect_error("in [-1, 4), got 4", [](Problem& p) { p.topk_idx[2] = 4; });
  expect_error("in [-1, 4), got -2", [](Problem& p) { p.topk_idx[2] = -2; });
  expect_error("topk_idx: expected 15", [](Problem& p) { p.topk_idx.pop_back(); });
  expect_error("down: expected 120", [](Problem& p) { p.experts.down.clear(); });
  expect_error("bias_up: expected 20", [](Problem& p) { p.experts.bias_up.clear(); });
  expect_error("up_dgrad: expected 42", [](Problem& p) { p.shared.up_dgrad = {1.0}; });
  const Problem p = small_problem({"", true, true, {}});
  EXPECT_THROW(backward(p, Values(29)), Error);
}

TEST(Oracle, NoTokens) {
  Problem p = small_problem({"", true, true, {}});
  p.tokens = 0;
  p.x.clear();
  p.topk_idx.clear();
  p.topk_weights.clear();
  EXPECT_TRUE(forward(p).empty());
  const Gradients g = backward(p, {});
  EXPECT_TRUE(g.dx.empty());
  EXPECT_EQ(g.experts.gate, Values(p.experts.gate.size(), 0.0));
  EXPECT_EQ(g.shared.down, Values(p.shared.down.size(), 0.0));
}

}  // namespace
}  // namespace catamount::oracle
