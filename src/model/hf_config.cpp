#include "model/hf_config.h"

#include <algorithm>

#include "io/check_io.h"
#include "io/json.h"

namespace catamount::model {
namespace {

using io::check_io;

constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxExperts = 1 << 16;
constexpr std::int64_t kMaxLayers = 1 << 16;
constexpr float kGptOssAlpha = 1.702F;  // fixed in the model's code
constexpr double kGptOssLimit = 7.0;

// One config.json being read.
struct Reader {
  io::JsonObject json;
  std::string file;

  std::int64_t width(const char* key) const { return json.integer(key, 1, kMaxWidth); }
  std::int64_t integer_or(const char* key, std::int64_t min, std::int64_t max,
                          std::int64_t otherwise) const {
    return json.has(key) ? json.integer(key, min, max) : otherwise;
  }
  bool boolean_or(const char* key, bool otherwise) const {
    return json.has(key) ? json.boolean(key) : otherwise;
  }
  float number_or(const char* key, double otherwise) const {
    return static_cast<float>(json.has(key) ? json.number(key) : otherwise);
  }
  // The first of two names that is there: models renamed some.
  const char* either(const char* key, const char* other) const {
    return json.has(key) ? key : other;
  }
  void expect(const char* key, std::string_view value) const {
    if (!json.has(key)) return;
    const std::string got = json.string(key);
    check_io(got == value, "{}: expected \"{}\" to be \"{}\", got \"{}\"", file, key, value, got);
  }
};

void read_mixtral(const Reader& in, HfConfig& config) {
  config.intermediate = in.width("intermediate_size");
  config.num_experts = in.json.integer("num_local_experts", 1, kMaxExperts);
  config.router.score = Score::softmax;
  config.router.normalize = true;
}

void read_qwen3_moe(const Reader& in, HfConfig& config) {
  config.intermediate = in.width("moe_intermediate_size");
  const char* experts = in.either("num_experts", "num_local_experts");
  config.num_experts = in.json.integer(experts, 1, kMaxExperts);
  config.router.score = Score::softmax;
  config.router.normalize = in.boolean_or("norm_topk_prob", false);
  config.moe_step = in.integer_or("decoder_sparse_step", 1, kMaxLayers, 1);
  if (!in.json.has("mlp_only_layers")) return;
  const auto& layers = in.json.at("mlp_only_layers");
  check_io(layers.is_array() &&
               std::ranges::all_of(layers, [](const auto& l) { return l.is_number_unsigned(); }),
           "{}: \"mlp_only_layers\" must be an array of layer numbers", in.file);
  for (const auto& layer : layers) config.dense_layers.push_back(layer.get<std::int64_t>());
}

void read_deepseek_v3(const Reader& in, HfConfig& config) {
  in.expect("scoring_func", "sigmoid");
  in.expect("topk_method", "noaux_tc");
  config.intermediate = in.width("moe_intermediate_size");
  config.num_experts = in.json.integer("n_routed_experts", 1, kMaxExperts);
  const std::int64_t shared = in.integer_or("n_shared_experts", 0, 1024, 0);
  config.shared_intermediate = shared * config.intermediate;
  config.router.score = Score::sigmoid;
  config.router.normalize = in.boolean_or("norm_topk_prob", true);
  config.router.routed_scaling = in.number_or("routed_scaling_factor", 2.5);
  config.router.n_group = in.integer_or("n_group", 1, kMaxExperts, 8);
  config.router.topk_group = in.integer_or("topk_group", 1, kMaxExperts, 4);
  config.first_moe_layer = in.integer_or("first_k_dense_replace", 0, kMaxLayers, 3);
  check_io(in.integer_or("moe_layer_freq", 1, kMaxLayers, 1) == 1,
           "{}: expected \"moe_layer_freq\" to be 1", in.file);
}

void read_gpt_oss(const Reader& in, HfConfig& config) {
  config.intermediate = in.width("intermediate_size");
  config.num_experts = in.json.integer("num_local_experts", 1, kMaxExperts);
  config.router.score = Score::softmax_of_topk;
  config.swiglu.alpha = kGptOssAlpha;
  config.swiglu.limit = in.number_or("swiglu_limit", kGptOssLimit);
  config.swiglu.up_offset = 1.0F;
}

void read_fp8_block(const Reader& in, HfConfig& config) {
  if (!in.json.has("quantization_config")) return;
  const std::string where = in.file + ": quantization_config";
  const io::JsonObject quantization(in.json.at("quantization_config"), where);
  if (!quantization.has("weight_block_size")) return;
  const auto& size = quantization.at("weight_block_size");
  const bool ok =
      size.is_array() && size.size() == 2 && std::ranges::all_of(size, [](const auto& n) {
        return n.is_number_unsigned() && n.template get<std::uint64_t>() - 1 < kMaxWidth;
      });
  check_io(ok, "{}: \"weight_block_size\" must be two positive integers", where);
  config.fp8_block = {size[0].get<std::int64_t>(), size[1].get<std::int64_t>()};
}

struct FamilyRow {
  std::string_view model_type;
  Family family;
  void (*read)(const Reader&, HfConfig&);
};
constexpr FamilyRow kFamilies[] = {
    {"mixtral", Family::mixtral, read_mixtral},
    {"qwen3_moe", Family::qwen3_moe, read_qwen3_moe},
    {"deepseek_v3", Family::deepseek_v3, read_deepseek_v3},
    {"kimi_k2", Family::deepseek_v3, read_deepseek_v3},
    {"gpt_oss", Family::gpt_oss, read_gpt_oss},
};

}  // namespace

HfConfig parse_hf_config(std::string_view json_text, const std::string& file) {
  const auto root = io::parse_json(json_text, file);
  const Reader in{io::JsonObject(root, file), file};
  HfConfig config;
  config.model_type = in.json.string("model_type");
  const auto* row = std::ranges::find(kFamilies, config.model_type, &FamilyRow::model_type);
  if (row == std::end(kFamilies)) {
    std::string known;
    for (const FamilyRow& r : kFamilies)
      known += (known.empty() ? "" : ", ") + std::string(r.model_type);
    fail(ErrorCode::io, "{}: expected a model_type of {}, got \"{}\"", file, known,
         config.model_type);
  }
  config.family = row->family;
  in.expect("hidden_act", "silu");
  config.num_layers = in.json.integer("num_hidden_layers", 1, kMaxLayers);
  config.hidden = in.width("hidden_size");
  row->read(in, config);
  const char* topk = in.either("num_experts_per_tok", "experts_per_token");
  config.router.topk = in.json.integer(topk, 1, kMaxExperts);
  read_fp8_block(in, config);
  try {
    validate(config.router, config.num_experts);
  } catch (const Error& error) {
    fail(ErrorCode::io, "{}: {}", file, error.what());
  }
  return config;
}

void check_moe_layer(const HfConfig& config, std::int64_t layer, const std::string& file) {
  check_io(layer >= 0 && layer < config.num_layers, "{}: layer must be in [0, {}), got {}", file,
           config.num_layers, layer);
  const bool is_dense = layer < config.first_moe_layer || (layer + 1) % config.moe_step != 0 ||
                        std::ranges::count(config.dense_layers, layer) > 0;
  check_io(!is_dense, "{}: layer {} is a dense layer, it has no experts", file, layer);
}

}  // namespace catamount::model
