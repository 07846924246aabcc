// Checkpoints in the layouts that models ship, each made from the same formula of (matrix, expert,
// row, column): whatever the layout, the layer must come out as the formula says.
#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/fp8.h"
#include "io/convert.h"
#include "io/safetensors.h"
#include "temp_dir.h"

namespace catamount::model {
namespace {

using io::FileDType;
using test::expect_error;
using test::TempDir;
using test::write_text;
using Dims = std::vector<std::int64_t>;

constexpr std::int64_t kH = 64, kI = 96, kE = 3, kShared = 2 * kI, kLayer = 3;
enum Matrix { gate, up, down, shared_gate, shared_up, shared_down, router, bias, other_bias };

// A code that FP4 can hold, so that every format stores it exactly.
std::uint8_t fp4_code(int matrix, std::int64_t e, std::int64_t r, std::int64_t c) {
  return static_cast<std::uint8_t>((matrix * 5 + e * 11 + r * 7 + c * 3 + r * c % 5) % 16);
}
float value(int matrix, std::int64_t e, std::int64_t r, std::int64_t c) {
  return io::e2m1_to_float(fp4_code(matrix, e, r, c));
}

// Tensors and the bytes they lie in.
class Files {
 public:
  using Value = std::function<float(const Dims&)>;

  template <class T, class Make>
  void add_as(const std::string& name, FileDType dtype, const Dims& shape, Make&& make) {
    Dims index(shape.size(), 0);
    std::string& bytes = bytes_[name];
    bytes.clear();
    io::FileTensor tensor{dtype, shape, {}};
    for (std::int64_t n = 0; n < tensor.size(); ++n) {
      const T element = make(index);
      bytes.append(reinterpret_cast<const char*>(&element), sizeof(T));
      for (std::size_t d = shape.size(); d-- > 0 && ++index[d] == shape[d];) index[d] = 0;
    }
    tensor.data = test::as_bytes(bytes);
    tensors[name] = tensor;
  }
  void bf16(const std::string& name, const Dims& shape, const Value& v) {
    add_as<Bf16>(name, FileDType::bf16, shape, [&](const Dims& i) { return to_bf16(v(i)); });
  }
  void f32(const std::string& name, const Dims& shape, const Value& v) {
    add_as<float>(name, FileDType::f32, shape, v);
  }
  void fp8(const std::string& name, const Dims& shape, const Value& v) {
    add_as<std::uint8_t>(name, FileDType::f8_e4m3, shape,
                         [&](const Dims& i) { return float_to_e4m3(v(i)); });
    f32(name + "_scale_inv", {(shape[0] + 63) / 64, (shape[1] + 31) / 32},
        [](const Dims&) { return 1.0F; });
  }

  io::TensorMap tensors;

 private:
  std::map<std::string, std::string> bytes_;
};

Files::Value plain(int matrix, std::int64_t e = 0) {
  return [=](const Dims& i) { return value(matrix, e, i[0], i[1]); };
}

class Checkpoint : public ::testing::Test {
 protected:
  std::string base = "model.layers." + std::to_string(kLayer) + ".";
  TempDir dir;
  Files files;

  void config(const std::string& model_type, const std::string& rest) {
    write_text(dir / "config.json", R"({"model_type":")" + model_type +
                                        R"(","hidden_act":"silu","hidden_size":64,)"
                                        R"("num_hidden_layers":4,"num_experts_per_tok":2,)" +
                                        rest + "}");
  }
  void save() { io::write_safetensors(dir / "model.safetensors", files.tensors); }
  MoeLayerWeights load() {
    save();
    return load_moe_layer(dir.path(), kLayer);
  }
  void expect_bad(std::initializer_list<std::string_view> words, std::int64_t layer = kLayer) {
    save();
    expect_error(ErrorCode::io, words, [&] { load_moe_layer(dir.path(), layer); });
  }

  void experts(const std::string& prefix, const char* g, const char* u, const char* d) {
    for (std::int64_t e = 0; e < kE; ++e) {
      const std::string name = base + prefix + std::to_string(e) + ".";
      files.bf16(name + g + ".weight", {kI, kH}, plain(gate, e));
      files.bf16(name + u + ".weight", {kI, kH}, plain(up, e));
      files.bf16(name + d + ".weight", {kH, kI}, plain(down, e));
    }
  }
  void mixtral() {
    config("mixtral", R"("intermediate_size":96,"num_local_experts":3)");
    experts("block_sparse_moe.experts.", "w1", "w3", "w2");
    files.bf16(base + "block_sparse_moe.gate.weight", {kE, kH}, plain(router));
  }
  void qwen3(const std::string& more = "") {
    config("qwen3_moe",
           R"("intermediate_size":7,"moe_intermediate_size":96,"num_experts":3)" + more);
    experts("mlp.experts.", "gate_proj", "up_proj", "down_proj");
    files.f32(base + "mlp.gate.weight", {kE, kH}, plain(router));
  }
  void deepseek(bool fp8) {
    config("deepseek_v3",
           R"("moe_intermediate_size":96,"n_routed_experts":3,"n_shared_experts":2,"n_group":3,)"
           R"("topk_group":2,"norm_topk_prob":true,"routed_scaling_factor":1.5,)"
           R"("scoring_func":"sigmoid","topk_method":"noaux_tc","first_k_dense_replace":1,)"
           R"("quantization_config":{"quant_method":"fp8","weight_block_size":[64,32]})");
    const auto add = [&](const std::string& name, const Dims& dims, const Files::Value& v) {
      fp8 ? files.fp8(name, dims, v) : files.bf16(name, dims, v);
    };
    for (std::int64_t e = 0; e < kE; ++e) {
      const std::string name = base + "mlp.experts." + std::to_string(e) + ".";
      add(name + "gate_proj.weight", {kI, kH}, plain(gate, e));
      add(name + "up_proj.weight", {kI, kH}, plain(up, e));
      add(name + "down_proj.weight", {kH, kI}, plain(down, e));
    }
    const std::string name = base + "mlp.shared_experts.";
    add(name + "gate_proj.weight", {kShared, kH}, plain(shared_gate));
    add(name + "up_proj.weight", {kShared, kH}, plain(shared_up));
    add(name + "down_proj.weight", {kH, kShared}, plain(shared_down));
    files.bf16(base + "mlp.gate.weight", {kE, kH}, plain(router));
    files.f32(base + "mlp.gate.e_score_correction_bias", {kE},
              [](const Dims& i) { return value(bias, 0, i[0], 0); });
  }
  void gpt_oss(bool mxfp4) {
    config("gpt_oss", R"("intermediate_size":96,"num_local_experts":3,"swiglu_limit":5.5)");
    const std::string name = base + "mlp.experts.";
    const auto interleaved = [](std::int64_t column) { return column % 2 == 0 ? gate : up; };
    if (mxfp4) {
      files.add_as<std::uint8_t>(
          name + "gate_up_proj_blocks", FileDType::u8, {kE, 2 * kI, kH / 32, 16},
          [&](const Dims& i) {
            const std::int64_t c = i[2] * 32 + 2 * i[3];
            const int m = interleaved(i[1]);
            return static_cast<std::uint8_t>(fp4_code(m, i[0], i[1] / 2, c) |
                                             fp4_code(m, i[0], i[1] / 2, c + 1) << 4);
          });
      files.add_as<std::uint8_t>(
          name + "down_proj_blocks", FileDType::u8, {kE, kH, kI / 32, 16}, [&](const Dims& i) {
            const std::int64_t c = i[2] * 32 + 2 * i[3];
            return static_cast<std::uint8_t>(fp4_code(down, i[0], i[1], c) |
                                             fp4_code(down, i[0], i[1], c + 1) << 4);
          });
      const auto one = [](const Dims&) { return std::uint8_t{127}; };
      files.add_as<std::uint8_t>(name + "gate_up_proj_scales", FileDType::u8, {kE, 2 * kI, kH / 32},
                                 one);
      files.add_as<std::uint8_t>(name + "down_proj_scales", FileDType::u8, {kE, kH, kI / 32}, one);
    } else {
      files.bf16(name + "gate_up_proj", {kE, kH, 2 * kI},
                 [&](const Dims& i) { return value(interleaved(i[2]), i[0], i[2] / 2, i[1]); });
      files.bf16(name + "down_proj", {kE, kI, kH},
                 [](const Dims& i) { return value(down, i[0], i[2], i[1]); });
    }
    files.bf16(name + "gate_up_proj_bias", {kE, 2 * kI},
               [&](const Dims& i) { return value(bias, i[0], i[1] / 2, interleaved(i[1])); });
    files.bf16(name + "down_proj_bias", {kE, kH},
               [](const Dims& i) { return value(other_bias, i[0], i[1], 0); });
    files.bf16(base + "mlp.router.weight", {kE, kH}, plain(router));
    files.bf16(base + "mlp.router.bias", {kE},
               [](const Dims& i) { return value(bias, 1, i[0], 1); });
  }
};

void expect_matrix(const std::vector<Bf16>& all, std::int64_t offset, int matrix, std::int64_t e,
                   std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      ASSERT_EQ(to_float(all.at(static_cast<std::size_t>(offset + r * cols + c))),
                value(matrix, e, r, c))
          << "matrix " << matrix << " expert " << e << " at " << r << ", " << c;
    }
  }
}

void expect_experts(const MoeLayerWeights& layer) {
  EXPECT_EQ(layer.hidden, kH);
  EXPECT_EQ(layer.intermediate, kI);
  EXPECT_EQ(layer.num_experts, kE);
  EXPECT_EQ(layer.router_config.topk, 2);
  ASSERT_EQ(layer.gate_up.size(), static_cast<std::size_t>(kE * 2 * kI * kH));
  ASSERT_EQ(layer.down.size(), static_cast<std::size_t>(kE * kH * kI));
  for (std::int64_t e = 0; e < kE; ++e) {
    expect_matrix(layer.gate_up, e * 2 * kI * kH, gate, e, kI, kH);
    expect_matrix(layer.gate_up, (e * 2 + 1) * kI * kH, up, e, kI, kH);
    expect_matrix(layer.down, e * kH * kI, down, e, kH, kI);
  }
  ASSERT_EQ(layer.router.weight.size(), static_cast<std::size_t>(kE * kH));
  for (std::int64_t i = 0; i < kE * kH; ++i) {
    EXPECT_EQ(layer.router.weight[static_cast<std::size_t>(i)], value(router, 0, i / kH, i % kH));
  }
}

TEST_F(Checkpoint, Mixtral) {
  mixtral();
  const auto layer = load();
  expect_experts(layer);
  EXPECT_EQ(layer.model_type, "mixtral");
  EXPECT_TRUE(layer.router_config.score == Score::softmax && layer.router_config.normalize);
  EXPECT_TRUE(layer.bias_down.empty() && layer.shared_down.empty() && layer.router.bias.empty());
}

TEST_F(Checkpoint, Qwen3) {
  qwen3();
  EXPECT_FALSE(load().router_config.normalize);
  qwen3(R"(,"norm_topk_prob":true,"decoder_sparse_step":2,"mlp_only_layers":[1])");
  const auto layer = load();
  expect_experts(layer);
  EXPECT_TRUE(layer.router_config.score == Score::softmax && layer.router_config.normalize);
}

TEST_F(Checkpoint, FusedNames) {
  qwen3();
  files.tensors.clear();
  files.bf16(base + "mlp.gate.weight", {kE, kH}, plain(router));
  files.bf16(base + "mlp.experts.gate_up_proj", {kE, 2 * kI, kH},
             [](const Dims& i) { return value(i[1] < kI ? gate : up, i[0], i[1] % kI, i[2]); });
  files.bf16(base + "mlp.experts.down_proj", {kE, kH, kI},
             [](const Dims& i) { return value(down, i[0], i[1], i[2]); });
  expect_experts(load());
  config("mixtral", R"("intermediate_size":96,"num_local_experts":3)");
  expect_experts(load());
}

TEST_F(Checkpoint, DeepSeekInBf16AndFp8) {
  for (const bool fp8 : {false, true}) {
    deepseek(fp8);
    const auto layer = load();
    expect_experts(layer);
    EXPECT_EQ(layer.shared_intermediate, kShared);
    expect_matrix(layer.shared_gate_up, 0, shared_gate, 0, kShared, kH);
    expect_matrix(layer.shared_gate_up, kShared * kH, shared_up, 0, kShared, kH);
    expect_matrix(layer.shared_down, 0, shared_down, 0, kH, kShared);
    ASSERT_EQ(layer.router.selection_bias.size(), static_cast<std::size_t>(kE));
    EXPECT_EQ(layer.router.selection_bias[2], value(bias, 0, 2, 0));
    EXPECT_EQ(layer.router_config.score, Score::sigmoid);
    EXPECT_EQ(layer.router_config.n_group, 3);
    EXPECT_EQ(layer.router_config.topk_group, 2);
    EXPECT_FLOAT_EQ(layer.router_config.routed_scaling, 1.5F);
  }
}

TEST_F(Checkpoint, Fp8ScalesAreApplied) {
  deepseek(true);
  const std::string name = base + "mlp.experts.1.down_proj.weight_scale_inv";
  files.f32(name, {1, 3}, [](const Dims& i) { return static_cast<float>(1 << i[1]); });
  const auto layer = load();
  for (const std::int64_t c : {0, 31, 32, 95}) {
    const auto i = static_cast<std::size_t>(kH * kI + 5 * kI + c);
    EXPECT_EQ(to_float(layer.down[i]), value(down, 1, 5, c) * static_cast<float>(1 << c / 32));
  }
}

TEST_F(Checkpoint, GptOssInBf16AndMxfp4) {
  for (const bool mxfp4 : {false, true}) {
    files.tensors.clear();
    gpt_oss(mxfp4);
    const auto layer = load();
    expect_experts(layer);
    EXPECT_FLOAT_EQ(layer.swiglu.alpha, 1.702F);
    EXPECT_FLOAT_EQ(layer.swiglu.limit, 5.5F);
    EXPECT_FLOAT_EQ(layer.swiglu.up_offset, 1.0F);
    EXPECT_EQ(layer.router_config.score, Score::softmax_of_topk);
    for (std::int64_t e = 0; e < kE; ++e) {
      EXPECT_EQ(layer.router.bias.at(static_cast<std::size_t>(e)), value(bias, 1, e, 1));
      for (std::int64_t i = 0; i < 2 * kI; ++i) {
        EXPECT_EQ(layer.bias_gate_up.at(static_cast<std::size_t>(e * 2 * kI + i)),
                  value(bias, e, i % kI, i < kI ? gate : up));
      }
      for (std::int64_t i = 0; i < kH; ++i) {
        EXPECT_EQ(layer.bias_down.at(static_cast<std::size_t>(e * kH + i)),
                  value(other_bias, e, i, 0));
      }
    }
  }
}

TEST_F(Checkpoint, Mxfp4ScalesBelongToTheirRows) {
  gpt_oss(true);
  files.add_as<std::uint8_t>(
      base + "mlp.experts.gate_up_proj_scales", FileDType::u8, {kE, 2 * kI, kH / 32},
      [](const Dims& i) { return static_cast<std::uint8_t>(127 + (i[0] + i[1] + 2 * i[2]) % 5); });
  const auto layer = load();
  for (const auto& [e, r, c] : {std::tuple{2, 0, 0}, {1, 17, 40}, {2, 95, 63}}) {
    const auto i = static_cast<std::size_t>(((2 * e + 1) * kI + r) * kH + c);
    const int exponent = (e + (2 * r + 1) + 2 * (c / 32)) % 5;
    EXPECT_EQ(to_float(layer.gate_up[i]), std::ldexp(value(up, e, r, c), exponent));
  }
}

TEST_F(Checkpoint, ShardsAndOnlyThoseOfTheLayer) {
  qwen3();
  io::TensorMap shards[2];
  std::string map = R"("model.layers.30.mlp.gate.weight":"absent.safetensors")";
  int n = 0;
  for (const auto& [name, tensor] : files.tensors) {
    shards[n % 2][name] = tensor;
    map += ",\"" + name + "\":\"" + std::to_string(n++ % 2) + ".safetensors\"";
  }
  for (const int s : {0, 1}) {
    io::write_safetensors(dir / (std::to_string(s) + ".safetensors"), shards[s]);
  }
  write_text(dir / "model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  expect_experts(load_moe_layer(dir.path(), kLayer));
}

TEST_F(Checkpoint, ViewsOfARanksExperts) {
  gpt_oss(false);
  const auto layer = load();
  const ExpertWeights w = layer.expert_weights(2, 3);
  EXPECT_EQ(to_string(w.gate_up), "bf16[1, 192, 64]");
  EXPECT_EQ(to_string(w.down), "bf16[1, 64, 96]");
  EXPECT_EQ(to_string(w.bias_gate_up), "f32[1, 192]");
  EXPECT_EQ(to_string(w.bias_down), "f32[1, 64]");
  EXPECT_FALSE(w.shared_down.present());
  EXPECT_EQ(static_cast<const Bf16*>(w.down.data)[1].bits, to_bf16(value(down, 2, 0, 1)).bits);
  EXPECT_EQ(static_cast<const float*>(w.bias_down.data)[3], value(other_bias, 2, 3, 0));
  const MoeConfig config = layer.moe_config();
  EXPECT_EQ(config.num_experts, kE);
  EXPECT_EQ(config.topk, 2);
  EXPECT_FLOAT_EQ(config.swiglu.alpha, 1.702F);
  expect_error(ErrorCode::invalid_argument, {"divides 3"}, [&] { layer.expert_weights(0, 2); });
}

TEST_F(Checkpoint, MissingAndMisshapenTensors) {
  deepseek(true);
  const io::TensorMap good = files.tensors;
  for (const auto& [name, tensor] : good) {
    SCOPED_TRACE(name);
    files.tensors = good;
    files.tensors.erase(name);
    expect_bad({"model.safetensors", "\"" + name + "\""});
    files.tensors = good;
    auto& shape = files.tensors[name].shape;
    shape.push_back(1);
    expect_bad({name.substr(0, name.find("_scale_inv")), "1]"});
  }
  files.tensors = good;
  const std::string name = base + "mlp.experts.0.up_proj.weight";
  files.add_as<std::int32_t>(name, FileDType::i32, {kI, kH}, [](const Dims&) { return 1; });
  expect_bad({name, "I32[96, 64]"});
  files.tensors.clear();
  gpt_oss(true);
  files.tensors.erase(base + "mlp.experts.down_proj_scales");
  expect_bad({"mlp.experts.down_proj_scales"});
}

TEST_F(Checkpoint, LayersThatAreNotThere) {
  deepseek(false);
  expect_bad({"config.json", "[0, 4)", "got 4"}, 4);
  expect_bad({"[0, 4)", "got -1"}, -1);
  expect_bad({"layer 0 is a dense layer"}, 0);
  expect_bad({"model.layers.2.mlp"}, 2);
  files.tensors.clear();
  qwen3(R"(,"decoder_sparse_step":2,"mlp_only_layers":[3])");
  expect_bad({"layer 2 is a dense layer"}, 2);
  expect_bad({"layer 3 is a dense layer"}, 3);
  std::filesystem::remove(dir / "config.json");
  expect_bad({"config.json", "cannot be opened"});
}

}  // namespace
}  // namespace catamount::model
