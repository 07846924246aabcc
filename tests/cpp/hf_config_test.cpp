// config.json: defaults, and one Error for everything that is missing, impossible or unknown.
#include "model/hf_config.h"

#include <gtest/gtest.h>

#include <string>

#include "temp_dir.h"

namespace catamount::model {
namespace {

using test::expect_error;

TEST(HfConfig, EveryDefectIsAnError) {
  const std::string good =
      R"({"model_type":"mixtral","hidden_size":64,"intermediate_size":96,"num_local_experts":8,)"
      R"("num_experts_per_tok":2,"num_hidden_layers":4})";
  ASSERT_EQ(parse_hf_config(good).num_experts, 8);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  struct {
    std::string text;
    const char* word;
  } const cases[] = {
      {"", "expected JSON"},
      {"[]", "expected a JSON object, got array"},
      {changed("mixtral", "llama"), "got \"llama\""},
      {changed("\"mixtral\"", "7"), "\"model_type\" must be a string"},
      {changed("\"hidden_size\":64,", ""), "expected a value for \"hidden_size\""},
      {changed("\"hidden_size\":64", "\"hidden_size\":null"), "\"hidden_size\""},
      {changed(":64", ":0"), "\"hidden_size\" must be an integer in [1, 1048576], got 0"},
      {changed(":64", ":1e3"), "\"hidden_size\""},
      {changed(":64", ":18446744073709551615"), "got 18446744073709551615"},
      {changed(":2,", ":9,"), "topk must be in [1, 8], got 9"},
      {changed("{", "{\"hidden_act\":\"gelu\","), "\"hidden_act\" to be \"silu\", got \"gelu\""},
      {changed("{", "{\"quantization_config\":{\"weight_block_size\":[0,1]},"),
       "weight_block_size"},
      {changed("{", "{\"model_type\":\"mixtral\","), "comes twice"},
  };
  for (const auto& bad : cases) {
    expect_error(ErrorCode::io, {"c.json", bad.word}, [&] { parse_hf_config(bad.text, "c.json"); });
  }
}

TEST(HfConfig, DeepSeekDefaultsAndKimi) {
  const auto parse = [](const std::string& type, const std::string& rest) {
    return parse_hf_config(R"({"model_type":")" + type +
                           R"(","hidden_size":64,"moe_intermediate_size":32,"n_routed_experts":64,)"
                           R"("n_shared_experts":1,"num_experts_per_tok":8,"num_hidden_layers":5)" +
                           rest + "}");
  };
  const HfConfig config = parse("deepseek_v3", "");
  EXPECT_EQ(config.router.n_group, 8);
  EXPECT_EQ(config.router.topk_group, 4);
  EXPECT_EQ(config.first_moe_layer, 3);
  EXPECT_EQ(config.fp8_block.rows, 128);
  EXPECT_EQ(config.shared_intermediate, 32);
  EXPECT_EQ(parse("kimi_k2", R"(,"n_group":1,"topk_group":1)").family, Family::deepseek_v3);
  expect_error(ErrorCode::io, {"scoring_func", "softmax"},
               [&] { parse("deepseek_v3", R"(,"scoring_func":"softmax")"); });
  expect_error(ErrorCode::io, {"topk_method"},
               [&] { parse("deepseek_v3", R"(,"topk_method":"greedy")"); });
}

}  // namespace
}  // namespace catamount::model
