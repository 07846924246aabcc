// The router against a plain double-precision one written from the models' definitions, and by
// hand: ties, groups, NaN.
#include "model/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "temp_dir.h"

namespace catamount::model {
namespace {

using test::expect_error;
using Ids = std::vector<std::int32_t>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

RouterWeights only_experts(std::int64_t num_experts) {
  RouterWeights weights;
  weights.num_experts = num_experts;
  return weights;
}

RouterConfig make_config(std::int64_t topk, Score score, bool normalize) {
  RouterConfig config;
  config.topk = topk;
  config.score = score;
  config.normalize = normalize;
  return config;
}

struct Case {
  std::string label;
  RouterConfig config;
  bool bias;
  bool selection_bias;
};

std::vector<Case> cases() {
  RouterConfig deepseek = make_config(4, Score::sigmoid, true);
  deepseek.routed_scaling = 2.5F;
  deepseek.n_group = 8;
  deepseek.topk_group = 3;
  return {{"mixtral", make_config(2, Score::softmax, true), false, false},
          {"not_normalized", make_config(3, Score::softmax, false), false, false},
          {"all_experts", make_config(24, Score::softmax, false), false, false},
          {"sigmoid", make_config(4, Score::sigmoid, false), false, false},
          {"deepseek", deepseek, false, true},
          {"gpt_oss", make_config(4, Score::softmax_of_topk, false), true, false}};
}

// [expert, weight] of one token, in double.
std::vector<std::pair<int, double>> reference(const std::vector<double>& logits, const Case& c,
                                              const RouterWeights& w) {
  const int n = static_cast<int>(logits.size());
  std::vector<double> score = logits;
  double sum = 0;
  for (const double l : logits) sum += std::exp(l);
  for (double& s : score) {
    if (c.config.score == Score::softmax) s = std::exp(s) / sum;
    if (c.config.score == Score::sigmoid) s = 1 / (1 + std::exp(-s));
  }
  std::vector<double> choice = score;
  if (c.selection_bias) {
    for (int e = 0; e < n; ++e) choice[e] += w.selection_bias[e];
  }
  const int groups = static_cast<int>(c.config.n_group), size = n / groups;
  std::vector<std::pair<double, int>> by_group;
  for (int g = 0; g < groups; ++g) {
    std::vector<double> in(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(in.rbegin(), in.rend());
    by_group.emplace_back(-(size > 1 ? in[0] + in[1] : in[0]), g);
  }
  std::sort(by_group.begin(), by_group.end());
  std::vector<std::pair<double, int>> experts;
  for (int i = 0; i < c.config.topk_group; ++i) {
    for (int e = by_group[i].second * size; e < (by_group[i].second + 1) * size; ++e) {
      experts.emplace_back(-choice[e], e);
    }
  }
  std::sort(experts.begin(), experts.end());
  std::vector<std::pair<int, double>> chosen;
  double chosen_sum = 0;
  for (int k = 0; k < c.config.topk; ++k) {
    const int e = experts[k].second;
    const bool later = c.config.score == Score::softmax_of_topk;
    chosen.emplace_back(e, later ? std::exp(score[e]) : score[e]);
    chosen_sum += chosen.back().second;
  }
  const bool divide = c.config.normalize || c.config.score == Score::softmax_of_topk;
  for (auto& [e, weight] : chosen) weight *= c.config.routed_scaling / (divide ? chosen_sum : 1);
  return chosen;
}

class RouterCases : public ::testing::TestWithParam<Case> {};

TEST_P(RouterCases, AgreesWithTheDefinition) {
  const Case& c = GetParam();
  constexpr int kTokens = 61, kExperts = 24, kHidden = 40;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  RouterWeights w;
  w.num_experts = kExperts;
  w.hidden = kHidden;
  for (int i = 0; i < kExperts * kHidden; ++i) w.weight.push_back(0.3F * normal(random));
  for (int e = 0; e < kExperts; ++e) {
    if (c.bias) w.bias.push_back(normal(random));
    if (c.selection_bias) w.selection_bias.push_back(0.3F * normal(random));
  }
  std::vector<Bf16> bf16;
  std::vector<float> f32;
  for (int i = 0; i < kTokens * kHidden; ++i) {
    bf16.push_back(to_bf16(normal(random)));
    f32.push_back(to_float(bf16.back()));
  }
  for (const ConstTensorView& hidden :
       {ConstTensorView(bf16.data(), DType::bf16, {kTokens, kHidden}),
        ConstTensorView(f32.data(), DType::f32, {kTokens, kHidden})}) {
    const Routing routing = route(hidden, w, c.config);
    const auto topk = static_cast<std::size_t>(c.config.topk);
    ASSERT_EQ(routing.topk_idx.size(), kTokens * topk);
    for (std::size_t t = 0; t < kTokens; ++t) {
      std::vector<double> logits(kExperts);
      for (std::size_t e = 0; e < kExperts; ++e) {
        logits[e] = c.bias ? w.bias[e] : 0;
        for (std::size_t h = 0; h < kHidden; ++h) {
          logits[e] += double{f32[t * kHidden + h]} * w.weight[e * kHidden + h];
        }
      }
      const auto want = reference(logits, c, w);
      for (std::size_t k = 0; k < topk; ++k) {
        EXPECT_EQ(routing.topk_idx[t * topk + k], want[k].first) << t;
        EXPECT_NEAR(routing.topk_weights[t * topk + k], want[k].second, 1e-5) << t;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RouterCases, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.label; });

TEST(Router, TiesGoToTheLowerExpert) {
  for (const Score score : {Score::softmax, Score::sigmoid, Score::softmax_of_topk}) {
    const auto routing =
        route_logits({1, 2, 2, 0, 2, 1, 0, 0}, only_experts(8), make_config(5, score, true));
    EXPECT_EQ(routing.topk_idx, (Ids{1, 2, 4, 0, 5}));
  }
  const auto equal = route_logits(std::vector<float>(8, 0.0F), only_experts(8),
                                  make_config(4, Score::softmax, true));
  EXPECT_EQ(equal.topk_idx, (Ids{0, 1, 2, 3}));
  EXPECT_EQ(equal.topk_weights, std::vector<float>(4, 0.25F));
}

TEST(Router, SelectionBiasChoosesButDoesNotWeigh) {
  RouterWeights weights = only_experts(4);
  weights.selection_bias = {0, 0, 0, 10};
  const auto routing = route_logits({3, 2, 1, -5}, weights, make_config(2, Score::sigmoid, false));
  EXPECT_EQ(routing.topk_idx, (Ids{3, 0}));
  EXPECT_NEAR(routing.topk_weights[0], 1 / (1 + std::exp(5.0)), 1e-6);
}

TEST(Router, GroupsExcludeBetterExpertsOfWorseGroups) {
  RouterConfig config = make_config(2, Score::sigmoid, false);
  config.n_group = 2;
  config.topk_group = 1;
  // Group 0 has the best expert, group 1 the best two together.
  EXPECT_EQ(route_logits({5, -9, -9, 2, 2, -9}, only_experts(6), config).topk_idx, (Ids{3, 4}));
  // All scores of the chosen group are negative: a group left out is out, not a score of 0.
  RouterWeights negative = only_experts(6);
  negative.selection_bias.assign(6, -50);
  EXPECT_EQ(route_logits({5, -9, -9, 2, 2, -9}, negative, config).topk_idx, (Ids{3, 4}));
}

TEST(Router, NaNLosesAndShows) {
  const auto sigmoid = route_logits({kNaN, 1, kNaN, -kInf, 2, kNaN, kNaN, kNaN}, only_experts(8),
                                    make_config(4, Score::sigmoid, false));
  EXPECT_EQ(sigmoid.topk_idx, (Ids{4, 1, 3, 0}));
  EXPECT_FALSE(std::isnan(sigmoid.topk_weights[2]));
  EXPECT_TRUE(std::isnan(sigmoid.topk_weights[3]));

  for (const Score score : {Score::softmax, Score::sigmoid, Score::softmax_of_topk}) {
    RouterConfig config = make_config(4, score, true);
    config.n_group = 4;
    config.topk_group = 2;
    // A second, healthy token: the first one's NaNs must not reach it.
    std::vector<float> logits(8, kNaN);
    logits.insert(logits.end(), {0, 1, 2, 3, 4, 5, 6, 7});
    const auto routing = route_logits(logits, only_experts(8), config);
    EXPECT_EQ(routing.topk_idx, (Ids{0, 1, 2, 3, 7, 6, 5, 4}));
    for (std::size_t k = 0; k < 4; ++k) EXPECT_TRUE(std::isnan(routing.topk_weights[k]));
    for (std::size_t k = 4; k < 8; ++k) EXPECT_FALSE(std::isnan(routing.topk_weights[k]));
  }
}

TEST(Router, RandomSpecialsAlwaysGiveDifferentExperts) {
  std::mt19937 random(5);
  const std::vector<float> pool = {kNaN, kInf, -kInf, 0.0F, -0.0F, 1.0F, 3e38F, -3e38F};
  for (int i = 0; i < 2000; ++i) {
    std::vector<float> logits(16);
    for (float& l : logits) l = pool[random() % pool.size()];
    RouterConfig config = make_config(6, static_cast<Score>(i % 3), true);
    config.n_group = 4;
    config.topk_group = 2;
    const auto ids = route_logits(logits, only_experts(16), config).topk_idx;
    EXPECT_EQ(std::set<std::int32_t>(ids.begin(), ids.end()).size(), 6U);
    EXPECT_EQ(ids, route_logits(logits, only_experts(16), config).topk_idx);
  }
}

TEST(Router, SigmoidsOfZeroDoNotDivideByZero) {
  const auto routing = route_logits(std::vector<float>(4, -1000.0F), only_experts(4),
                                    make_config(2, Score::sigmoid, true));
  EXPECT_EQ(routing.topk_weights, std::vector<float>(2, 0.0F));
}

TEST(Router, NoTokens) {
  RouterWeights w = only_experts(4);
  w.hidden = 8;
  w.weight.resize(32);
  const auto routing =
      route({nullptr, DType::bf16, {0, 8}}, w, make_config(2, Score::softmax, true));
  EXPECT_TRUE(routing.topk_idx.empty());
}

TEST(Router, BadSizesAreErrors) {
  const auto bad = [](std::initializer_list<std::string_view> words, auto change) {
    RouterConfig config = make_config(2, Score::softmax, true);
    RouterWeights w = only_experts(8);
    w.hidden = 4;
    w.weight.resize(32);
    std::vector<float> x(12);
    ConstTensorView hidden(x.data(), DType::f32, {3, 4});
    change(config, w, hidden);
    expect_error(ErrorCode::invalid_argument, words, [&] { route(hidden, w, config); });
  };
  bad({"topk", "[1, 8]", "9"}, [](auto& c, auto&, auto&) { c.topk = 9; });
  bad({"topk", "0"}, [](auto& c, auto&, auto&) { c.topk = 0; });
  bad({"n_group", "3"}, [](auto& c, auto&, auto&) { c.n_group = 3; });
  bad({"topk_group", "2"}, [](auto& c, auto&, auto&) { c.topk_group = 2; });
  bad({"topk is 2", "1 experts"}, [](auto& c, auto&, auto&) { c.n_group = 8; });
  bad({"[8, 4]", "31"}, [](auto&, auto& w, auto&) { w.weight.pop_back(); });
  bad({"router bias", "3"}, [](auto&, auto& w, auto&) { w.bias.resize(3); });
  bad({"selection bias", "3"}, [](auto&, auto& w, auto&) { w.selection_bias.resize(3); });
  bad({"[T, 4]", "f32[3, 5]"}, [](auto&, auto&, auto& h) { h.shape[1] = 5; });
  bad({"[T, 4]", "i32[3, 4]"}, [](auto&, auto&, auto& h) { h.dtype = DType::i32; });
}

}  // namespace
}  // namespace catamount::model
