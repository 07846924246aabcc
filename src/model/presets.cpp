#include "model/presets.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/check.h"

namespace catamount::model {
namespace {

constexpr std::int64_t kWidthStep = 32;
constexpr std::int64_t kExpertStep = 8;
constexpr Swiglu kGptOssSwiglu = {.alpha = 1.702F, .limit = 7.0F, .up_offset = 1.0F};

Preset deepseek_v3() {
  return {.name = "deepseek-v3",
          .hidden = 7168,
          .intermediate = 2048,
          .num_experts = 256,
          .shared_intermediate = 2048,
          .selection_bias = true,
          .router = {.topk = 8,
                     .score = Score::sigmoid,
                     .normalize = true,
                     .routed_scaling = 2.5F,
                     .n_group = 8,
                     .topk_group = 4}};
}

Preset kimi_k2() {
  Preset preset = deepseek_v3();
  preset.name = "kimi-k2";
  preset.num_experts = 384;
  preset.router.routed_scaling = 2.827F;
  preset.router.n_group = 1;
  preset.router.topk_group = 1;
  return preset;
}

// softmax, top-k, weights that sum to 1.
Preset plain(const char* name, std::int64_t hidden, std::int64_t intermediate,
             std::int64_t num_experts, std::int64_t topk) {
  return {.name = name,
          .hidden = hidden,
          .intermediate = intermediate,
          .num_experts = num_experts,
          .router = {.topk = topk, .score = Score::softmax, .normalize = true}};
}

Preset gpt_oss_120b() {
  return {.name = "gpt-oss-120b",
          .hidden = 2880,
          .intermediate = 2880,
          .num_experts = 128,
          .swiglu = kGptOssSwiglu,
          .expert_biases = true,
          .router_bias = true,
          .router = {.topk = 4, .score = Score::softmax_of_topk}};
}

Preset small() {
  Preset preset = plain("small", 512, 256, 16, 4);
  preset.shared_intermediate = 256;
  return preset;
}

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::int64_t scaled_width(std::int64_t width, std::int64_t factor) {
  if (width == 0) return 0;
  return std::max(kWidthStep, width / factor / kWidthStep * kWidthStep);
}

}  // namespace

std::span<const Preset> presets() {
  static const std::array kPresets = {small(),
                                      deepseek_v3(),
                                      plain("qwen3-235b-a22b", 4096, 1536, 128, 8),
                                      plain("qwen3-30b-a3b", 2048, 768, 128, 8),
                                      plain("mixtral-8x7b", 4096, 14336, 8, 2),
                                      gpt_oss_120b(),
                                      kimi_k2()};
  return kPresets;
}

const Preset& find_preset(std::string_view name) {
  std::string names;
  for (const Preset& preset : presets()) {
    if (std::ranges::equal(preset.name, name, {}, {}, lower)) return preset;
    names += (names.empty() ? "" : ", ") + preset.name;
  }
  fail(ErrorCode::invalid_argument, "expected one of the presets {}, got \"{}\"", names, name);
}

Preset scaled(const Preset& preset, std::int64_t factor) {
  check(factor >= 1, "a preset is scaled down by a factor of at least 1, got {}", factor);
  if (factor == 1) return preset;
  Preset result = preset;
  result.hidden = scaled_width(preset.hidden, factor);
  result.intermediate = scaled_width(preset.intermediate, factor);
  result.shared_intermediate = scaled_width(preset.shared_intermediate, factor);

  const RouterConfig& router = preset.router;
  // topk experts must fit in topk_group groups.
  const std::int64_t group_size = (router.topk + router.topk_group - 1) / router.topk_group;
  const std::int64_t enough = std::max(router.topk, group_size * router.n_group);
  const std::int64_t step = preset.num_experts % kExpertStep == 0 ? kExpertStep : 1;
  const std::int64_t wanted = std::max(enough, preset.num_experts / factor);
  // n_group divides the result: it is 1, or 8 as in DeepSeek-V3.
  result.num_experts = std::min(preset.num_experts, (wanted + step - 1) / step * step);
  validate(result.router, result.num_experts);
  return result;
}

MoeConfig moe_config(const Preset& preset) {
  MoeConfig config;
  config.hidden = preset.hidden;
  config.intermediate = preset.intermediate;
  config.num_experts = preset.num_experts;
  config.topk = preset.router.topk;
  config.shared_intermediate = preset.shared_intermediate;
  config.swiglu = preset.swiglu;
  return config;
}

}  // namespace catamount::model
