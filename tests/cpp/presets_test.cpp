// Presets: the published numbers, and that every scale of every preset is a layer that can run.
#include "model/presets.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "temp_dir.h"

namespace catamount::model {
namespace {

struct Published {
  const char* name;
  std::int64_t hidden, intermediate, num_experts, topk, shared;
};

class Presets : public ::testing::TestWithParam<Published> {};

TEST_P(Presets, HavePublishedSizes) {
  const Published& want = GetParam();
  const Preset& preset = find_preset(want.name);
  EXPECT_EQ(preset.hidden, want.hidden);
  EXPECT_EQ(preset.intermediate, want.intermediate);
  EXPECT_EQ(preset.num_experts, want.num_experts);
  EXPECT_EQ(preset.router.topk, want.topk);
  EXPECT_EQ(preset.shared_intermediate, want.shared);
  const MoeConfig config = moe_config(preset);
  EXPECT_EQ(config.topk, want.topk);
  EXPECT_EQ(config.shared_intermediate, want.shared);
}

TEST_P(Presets, EveryScaleCanRun) {
  const Preset& preset = find_preset(GetParam().name);
  for (std::int64_t factor = 1; factor <= 512; ++factor) {
    const Preset s = scaled(preset, factor);
    SCOPED_TRACE(preset.name + " / " + std::to_string(factor));
    EXPECT_NO_THROW(validate(s.router, s.num_experts));
    for (const std::int64_t width : {s.hidden, s.intermediate, s.shared_intermediate}) {
      EXPECT_EQ(width % 32, 0);
    }
    EXPECT_GE(s.hidden, 32);
    EXPECT_GE(s.intermediate, 32);
    EXPECT_EQ(s.shared_intermediate > 0, preset.shared_intermediate > 0);
    EXPECT_LE(s.hidden * factor, std::max<std::int64_t>(preset.hidden, 32 * factor));
    EXPECT_GE((s.hidden + 32) * factor, preset.hidden);
    EXPECT_EQ(s.num_experts % 8, 0);
    EXPECT_GE(s.num_experts, s.router.topk);
    EXPECT_LE(s.num_experts, preset.num_experts);
    EXPECT_GE(s.num_experts, preset.num_experts / factor);
    EXPECT_EQ(s.router.topk, preset.router.topk);
    EXPECT_EQ(s.swiglu.limit, preset.swiglu.limit);
    EXPECT_EQ(s.expert_biases, preset.expert_biases);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Presets,
                         ::testing::Values(Published{"small", 512, 256, 16, 4, 256},
                                           Published{"deepseek-v3", 7168, 2048, 256, 8, 2048},
                                           Published{"qwen3-235b-a22b", 4096, 1536, 128, 8, 0},
                                           Published{"qwen3-30b-a3b", 2048, 768, 128, 8, 0},
                                           Published{"mixtral-8x7b", 4096, 14336, 8, 2, 0},
                                           Published{"gpt-oss-120b", 2880, 2880, 128, 4, 0},
                                           Published{"kimi-k2", 7168, 2048, 384, 8, 2048}),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(Preset, TheListIsWhatTheTestsCover) { EXPECT_EQ(presets().size(), 7U); }

TEST(Preset, RoutersAndActivations) {
  const Preset& deepseek = find_preset("DeepSeek-V3");
  EXPECT_EQ(deepseek.router.score, Score::sigmoid);
  EXPECT_TRUE(deepseek.selection_bias);
  EXPECT_FLOAT_EQ(deepseek.router.routed_scaling, 2.5F);
  EXPECT_EQ(deepseek.router.n_group, 8);
  EXPECT_EQ(deepseek.router.topk_group, 4);
  const Preset& kimi = find_preset("Kimi-K2");
  EXPECT_FLOAT_EQ(kimi.router.routed_scaling, 2.827F);
  EXPECT_EQ(kimi.router.n_group, 1);
  const Preset& gpt_oss = find_preset("gpt-oss-120b");
  EXPECT_EQ(gpt_oss.router.score, Score::softmax_of_topk);
  EXPECT_TRUE(gpt_oss.expert_biases && gpt_oss.router_bias);
  EXPECT_FLOAT_EQ(gpt_oss.swiglu.alpha, 1.702F);
  EXPECT_FLOAT_EQ(gpt_oss.swiglu.limit, 7.0F);
  EXPECT_FLOAT_EQ(gpt_oss.swiglu.up_offset, 1.0F);
  const Preset& mixtral = find_preset("Mixtral-8x7B");
  EXPECT_TRUE(mixtral.router.normalize && mixtral.router.score == Score::softmax);
  EXPECT_TRUE(std::isinf(mixtral.swiglu.limit));
}

TEST(Preset, ScalesByTheFactor) {
  const Preset s = scaled(find_preset("deepseek-v3"), 8);
  EXPECT_EQ(s.hidden, 896);
  EXPECT_EQ(s.intermediate, 256);
  EXPECT_EQ(s.shared_intermediate, 256);
  EXPECT_EQ(s.num_experts, 32);
  EXPECT_EQ(scaled(find_preset("deepseek-v3"), 1000).num_experts, 16);  // 4 of 8 groups hold 8
}

TEST(Preset, BadNamesAndFactorsAreErrors) {
  test::expect_error(ErrorCode::invalid_argument, {"small, deepseek-v3", "\"smal\""},
                     [] { find_preset("smal"); });
  test::expect_error(ErrorCode::invalid_argument, {"at least 1, got 0"},
                     [] { scaled(find_preset("small"), 0); });
}

}  // namespace
}  // namespace catamount::model
