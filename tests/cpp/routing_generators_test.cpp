// Generated routings: their distributions, what every one of them promises, repeatability, errors.
#include "model/routing_generators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "catamount/error.h"

namespace catamount::model {
namespace {

constexpr std::int64_t kTokens = 4000;
constexpr std::int64_t kTopk = 4;
constexpr std::int64_t kExperts = 16;
constexpr int kRanks = 4;

Routing make(const RoutingSpec& spec, std::uint64_t seed = 1) {
  return make_routing(spec, kTokens, kTopk, kExperts, kRanks, seed);
}

std::vector<double> slots_of_experts(const Routing& routing) {
  std::vector<double> count(static_cast<std::size_t>(kExperts), 0.0);
  for (const std::int32_t e : routing.topk_idx) {
    if (e >= 0) count[static_cast<std::size_t>(e)] += 1;
  }
  return count;
}

double fraction_masked(const Routing& routing) {
  const auto masked = std::count(routing.topk_idx.begin(), routing.topk_idx.end(), -1);
  return static_cast<double>(masked) / static_cast<double>(routing.topk_idx.size());
}

class EveryRouting : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Specs, EveryRouting,
                         testing::Values("uniform", "zipf:1.2", "zipf:0", "hot:1", "hot:3",
                                         "empty-rank"));

TEST_P(EveryRouting, IdsAreInRangeAndWeightsSumToOne) {
  RoutingSpec spec = parse_routing_spec(GetParam());
  spec.masked = 0.25;
  const Routing routing = make(spec);
  ASSERT_EQ(routing.topk_idx.size(), static_cast<std::size_t>(kTokens * kTopk));
  ASSERT_EQ(routing.topk_weights.size(), routing.topk_idx.size());
  for (std::size_t t = 0; t < routing.topk_idx.size(); t += kTopk) {
    float sum = 0;
    for (std::size_t k = t; k < t + kTopk; ++k) {
      EXPECT_GE(routing.topk_idx[k], -1);
      EXPECT_LT(routing.topk_idx[k], kExperts);
      EXPECT_GT(routing.topk_weights[k], 0.0F);
      sum += routing.topk_weights[k];
    }
    EXPECT_NEAR(sum, 1.0F, 1e-6F);
  }
  EXPECT_NEAR(fraction_masked(routing), 0.25, 0.02);
}

TEST_P(EveryRouting, SeedDecides) {
  const RoutingSpec spec = parse_routing_spec(GetParam());
  const Routing a = make(spec, 7);
  const Routing b = make(spec, 7);
  const Routing c = make(spec, 8);
  EXPECT_EQ(a.topk_idx, b.topk_idx);
  EXPECT_EQ(a.topk_weights, b.topk_weights);
  EXPECT_NE(a.topk_weights, c.topk_weights);
}

TEST_P(EveryRouting, TextComesBack) {
  EXPECT_EQ(to_string(parse_routing_spec(GetParam())), GetParam());
}

TEST_P(EveryRouting, NoTokens) {
  EXPECT_TRUE(
      make_routing(parse_routing_spec(GetParam()), 0, kTopk, kExperts, kRanks, 1).topk_idx.empty());
}

TEST(RoutingGenerators, ExpertsOfATokenAreDistinct) {
  for (const char* text : {"uniform", "zipf:3", "empty-rank"}) {
    const Routing routing = make(parse_routing_spec(text));
    for (auto t = routing.topk_idx.begin(); t != routing.topk_idx.end(); t += kTopk) {
      EXPECT_EQ(std::set<std::int32_t>(t, t + kTopk).size(), static_cast<std::size_t>(kTopk));
    }
  }
}

// As many slots as experts: each token names them all, even the least likely ones.
TEST(RoutingGenerators, TopkMayBeAllExperts) {
  for (const char* text : {"uniform", "zipf:10"}) {
    const Routing routing = make_routing(parse_routing_spec(text), 50, 6, 6, 1, 3);
    for (auto t = routing.topk_idx.begin(); t != routing.topk_idx.end(); t += 6) {
      EXPECT_EQ(std::set<std::int32_t>(t, t + 6).size(), 6U);
    }
  }
}

TEST(RoutingGenerators, UniformIsUniform) {
  // 1000 slots expected of each expert, standard deviation below 31.
  for (const double count : slots_of_experts(make({}))) EXPECT_NEAR(count, 1000, 150);
}

// With one slot a token the counts are those of the formula.
TEST(RoutingGenerators, ZipfFollowsItsExponent) {
  for (const double exponent : {0.0, 0.7, 1.2, 2.0}) {
    RoutingSpec spec = parse_routing_spec("zipf:" + std::to_string(exponent));
    const Routing routing = make_routing(spec, 40000, 1, kExperts, kRanks, 5);
    double total = 0;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      total += std::pow(static_cast<double>(e + 1), -exponent);
    }
    const std::vector<double> count = slots_of_experts(routing);
    for (std::size_t e = 0; e < count.size(); ++e) {
      const double expected = 40000 * std::pow(static_cast<double>(e + 1), -exponent) / total;
      EXPECT_NEAR(count[e], expected, 5 * std::sqrt(expected)) << exponent << " " << e;
    }
  }
}

TEST(RoutingGenerators, HotTakesEverything) {
  const std::vector<double> count = slots_of_experts(make(parse_routing_spec("hot:3")));
  for (std::size_t e = 0; e < count.size(); ++e) {
    if (e < 3) {
      EXPECT_NEAR(count[e], kTokens * kTopk / 3.0, 400);
    } else {
      EXPECT_EQ(count[e], 0);
    }
  }
}

TEST(RoutingGenerators, LastRankIsEmpty) {
  const std::vector<double> count = slots_of_experts(make(parse_routing_spec("empty-rank")));
  for (std::size_t e = 0; e < 12; ++e) EXPECT_GT(count[e], 0) << e;
  for (std::size_t e = 12; e < 16; ++e) EXPECT_EQ(count[e], 0) << e;
}

TEST(RoutingGenerators, FractionsAreExactAtTheirEnds) {
  RoutingSpec spec;
  EXPECT_EQ(fraction_masked(make(spec)), 0.0);
  spec.masked = 1.0;
  EXPECT_EQ(fraction_masked(make(spec)), 1.0);
  spec.masked = 0.0;
  spec.repeated = 1.0;
  const Routing routing = make(spec);
  for (std::size_t i = 0; i < routing.topk_idx.size(); ++i) {
    EXPECT_EQ(routing.topk_idx[i], routing.topk_idx[i - i % kTopk]);
  }
}

TEST(RoutingGenerators, SomeSlotsRepeat) {
  RoutingSpec spec;
  spec.repeated = 0.3;
  const Routing routing = make(spec);
  double repeats = 0;
  for (std::size_t i = 0; i < routing.topk_idx.size(); ++i) {
    repeats += i % kTopk > 0 && routing.topk_idx[i] == routing.topk_idx[i - 1] ? 1 : 0;
  }
  EXPECT_NEAR(repeats / (kTokens * (kTopk - 1)), 0.3, 0.02);
}

void expect_error(const std::string& text, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "expected an error with " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(RoutingGenerators, BadTextsAreNamed) {
  for (const char* text : {"", "random", "uniform:2", "empty-rank:1", "Zipf:1", "zipf :1"}) {
    expect_error("uniform, zipf:S, hot:N or empty-rank, got \"" + std::string(text) + "\"",
                 [&] { parse_routing_spec(text); });
  }
  for (const char* text : {"zipf", "zipf:", "zipf:x", "zipf:1.2x", "zipf:-1", "zipf:11", "zipf:nan",
                           "zipf:1e999", "zipf: 1"}) {
    expect_error("expected zipf:S with S in [0, 10], got \"" + std::string(text) + "\"",
                 [&] { parse_routing_spec(text); });
  }
  for (const char* text :
       {"hot", "hot:", "hot:0", "hot:-1", "hot:1.5", "hot:99999999999999999999"}) {
    expect_error("expected hot:N with N at least 1, got \"" + std::string(text) + "\"",
                 [&] { parse_routing_spec(text); });
  }
}

TEST(RoutingGenerators, WhatCannotBeDrawnIsAnError) {
  expect_error("needs topk 5 distinct experts, but only 4 are left",
               [] { make_routing({}, 1, 5, 4, 1, 1); });
  expect_error("needs topk 4 distinct experts, but only 3 are left",
               [] { make_routing(parse_routing_spec("empty-rank"), 1, 4, 4, 4, 1); });
  expect_error("only 0 are left",
               [] { make_routing(parse_routing_spec("empty-rank"), 1, 1, 4, 1, 1); });
  expect_error("hot must be at most num_experts 4, got 5",
               [] { make_routing(parse_routing_spec("hot:5"), 1, 2, 4, 1, 1); });
  for (const double fraction : {-0.1, 1.1, std::nan("")}) {
    RoutingSpec spec;
    spec.masked = fraction;
    expect_error("fraction of slots in [0, 1]", [&] { make(spec); });
    spec.masked = 0;
    spec.repeated = fraction;
    expect_error("fraction of slots in [0, 1]", [&] { make(spec); });
  }
}

}  // namespace
}  // namespace catamount::model
