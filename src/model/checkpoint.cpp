#include "model/checkpoint.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "io/check_io.h"
#include "io/convert.h"
#include "io/safetensors.h"
#include "model/hf_config.h"

namespace catamount::model {
namespace {

using io::check_io;
using io::FileDType;
using io::FileTensor;
using Dims = std::vector<std::int64_t>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// A weight as the file has it, and where its values go. The file's rows may need another order.
enum class Layout : std::uint8_t {
  same,                // [M, N] as ours
  interleaved_rows,    // [2I, H]: gate 0, up 0, gate 1, up 1, ...
  transposed,          // [N, M]
  transposed_columns,  // [H, 2I], columns interleaved
};

struct Piece {
  std::string name;
  const FileTensor* values;
  const FileTensor* scales;  // FP8 and MXFP4
  Layout layout;
  std::int64_t offset;  // in elements of the destination
};

// Values of [rows, cols] (ours) in file order -> ours.
void reorder(const std::vector<Bf16>& from, Layout layout, std::int64_t rows, std::int64_t cols,
             std::span<Bf16> out) {
  const bool interleaved = layout != Layout::transposed;
  const bool transposed = layout != Layout::interleaved_rows;
  constexpr std::int64_t kTile = 64;  // rows and columns stay in cache while both are walked
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (std::int64_t c0 = 0; c0 < cols; c0 += kTile) {
      for (std::int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) {
        const std::int64_t half = rows / 2;
        const std::int64_t file_row = !interleaved ? r : (r < half ? 2 * r : 2 * (r - half) + 1);
        for (std::int64_t c = c0; c < std::min(c0 + kTile, cols); ++c) {
          const std::int64_t i = transposed ? c * rows + file_row : file_row * cols + c;
          out[at(r * cols + c)] = from[at(i)];
        }
      }
    }
  }
}

class LayerReader {
 public:
  LayerReader(const io::Safetensors& file, const HfConfig& config, std::string prefix)
      : file_(file), config_(config), prefix_(std::move(prefix)) {}

  MoeLayerWeights read();

 private:
  const FileTensor& require(const std::string& name, const Dims& dims) const {
    const FileTensor& tensor = file_.at(name);
    check_io(tensor.shape == dims, "{}: tensor \"{}\" must be {}, got {}", file_.name(), name,
             io::to_string(dims), to_string(tensor));
    return tensor;
  }
  bool has(const std::string& name) const { return file_.find(prefix_ + name) != nullptr; }

  // A small tensor, as FP32.
  std::vector<float> vector(const std::string& name, const Dims& dims) const {
    const std::string full = prefix_ + name;
    const FileTensor& tensor = require(full, dims);
    std::vector<float> values(at(tensor.size()));
    io::tensor_to_f32(tensor, file_.name() + ": tensor \"" + full + "\"", values);
    return values;
  }

  void add(std::vector<Piece>& pieces, const std::string& name, const Dims& dims, Layout layout,
           std::int64_t offset) const;
  void add_mxfp4(std::vector<Piece>& pieces, const std::string& name, Dims dims,
                 Layout layout) const;
  void add_mlp(const std::string& name, std::int64_t expert, std::int64_t width, const char* gate,
               const char* up, const char* down, std::vector<Piece>& gate_up_pieces,
               std::vector<Piece>& down_pieces) const;
  void add_gpt_oss();
  // [experts, rows, cols] from the pieces, each of which holds one or more experts.
  std::vector<Bf16> load(const std::vector<Piece>& pieces, std::int64_t experts, std::int64_t rows,
                         std::int64_t cols) const;

  const io::Safetensors& file_;
  const HfConfig& config_;
  std::string prefix_;
  std::vector<Piece> gate_up_, down_, shared_gate_up_, shared_down_;
};

void LayerReader::add(std::vector<Piece>& pieces, const std::string& name, const Dims& dims,
                      Layout layout, std::int64_t offset) const {
  const std::string full = prefix_ + name;
  const FileTensor& values = require(full, dims);
  const FileTensor* scales = nullptr;
  if (values.dtype == FileDType::f8_e4m3) {
    scales = &file_.at(full + "_scale_inv");
  } else {
    check_io(io::is_plain_float(values.dtype),
             "{}: tensor \"{}\" must be BF16, F16, F32 or F8_E4M3, got {}", file_.name(), full,
             to_string(values));
  }
  pieces.push_back({full, &values, scales, layout, offset});
}

// `dims` as the values have them: [E, M, N].
void LayerReader::add_mxfp4(std::vector<Piece>& pieces, const std::string& name, Dims dims,
                            Layout layout) const {
  const std::string full = prefix_ + name;
  check_io(dims.back() % 32 == 0,
           "{}: tensor \"{}\" is MXFP4, which needs a multiple of 32, got {}", file_.name(), full,
           dims.back());
  dims.back() /= 32;
  const FileTensor& scales = require(full + "_scales", dims);
  dims.push_back(16);
  pieces.push_back({full, &require(full + "_blocks", dims), &scales, layout, 0});
}

void LayerReader::add_mlp(const std::string& name, std::int64_t expert, std::int64_t width,
                          const char* gate, const char* up, const char* down,
                          std::vector<Piece>& gate_up_pieces,
                          std::vector<Piece>& down_pieces) const {
  const std::int64_t h = config_.hidden, weights = width * h;
  add(gate_up_pieces, name + gate + ".weight", {width, h}, Layout::same, expert * 2 * weights);
  add(gate_up_pieces, name + up + ".weight", {width, h}, Layout::same, (expert * 2 + 1) * weights);
  add(down_pieces, name + down + ".weight", {h, width}, Layout::same, expert * weights);
}

void LayerReader::add_gpt_oss() {
  const std::int64_t e = config_.num_experts, h = config_.hidden, i = config_.intermediate;
  if (has("experts.gate_up_proj_blocks")) {
    add_mxfp4(gate_up_, "experts.gate_up_proj", {e, 2 * i, h}, Layout::interleaved_rows);
    add_mxfp4(down_, "experts.down_proj", {e, h, i}, Layout::same);
  } else {
    add(gate_up_, "experts.gate_up_proj", {e, h, 2 * i}, Layout::transposed_columns, 0);
    add(down_, "experts.down_proj", {e, i, h}, Layout::transposed, 0);
  }
}

std::vector<Bf16> LayerReader::load(const std::vector<Piece>& pieces, std::int64_t experts,
                                    std::int64_t rows, std::int64_t cols) const {
  std::vector<Bf16> result(at(experts * rows * cols));
  std::vector<Bf16> scratch;
  for (const Piece& piece : pieces) {
    const std::string who = file_.name() + ": tensor \"" + piece.name + "\"";
    const FileTensor& values = *piece.values;
    if (values.dtype == FileDType::f8_e4m3) {
      const auto out = std::span(result).subspan(at(piece.offset), values.data.size());
      io::fp8_blocks_to_bf16(values, *piece.scales, config_.fp8_block, who, out);
    } else if (piece.layout == Layout::same && piece.scales == nullptr) {
      io::tensor_to_bf16(values, who,
                         std::span(result).subspan(at(piece.offset), at(values.size())));
    } else {
      // All experts in one tensor: one at a time through the scratch.
      const auto slice = [&](const FileTensor& tensor, std::int64_t e) {
        FileTensor part = tensor;
        part.shape.erase(part.shape.begin());
        const std::size_t bytes = tensor.data.size() / at(experts);
        part.data = tensor.data.subspan(at(e) * bytes, bytes);
        return part;
      };
      for (std::int64_t e = 0; e < experts; ++e) {
        const auto out = std::span(result).subspan(at(e * rows * cols), at(rows * cols));
        scratch.resize(piece.layout == Layout::same ? 0 : out.size());
        const auto target = piece.layout == Layout::same ? out : std::span(scratch);
        if (piece.scales != nullptr) {
          io::mxfp4_to_bf16(slice(values, e), slice(*piece.scales, e), who, target);
        } else {
          io::tensor_to_bf16(slice(values, e), who, target);
        }
        if (piece.layout != Layout::same) reorder(scratch, piece.layout, rows, cols, out);
      }
    }
  }
  return result;
}

MoeLayerWeights LayerReader::read() {
  const std::int64_t e = config_.num_experts, h = config_.hidden, i = config_.intermediate;
  const std::int64_t shared = config_.shared_intermediate;
  const bool gpt_oss = config_.family == Family::gpt_oss;
  if (gpt_oss) {
    add_gpt_oss();
  } else if (has("experts.gate_up_proj")) {  // the fused names of newer transformers
    add(gate_up_, "experts.gate_up_proj", {e, 2 * i, h}, Layout::same, 0);
    add(down_, "experts.down_proj", {e, h, i}, Layout::same, 0);
  } else {
    const bool mixtral = config_.family == Family::mixtral;
    for (std::int64_t n = 0; n < e; ++n) {
      add_mlp("experts." + std::to_string(n) + ".", n, i, mixtral ? "w1" : "gate_proj",
              mixtral ? "w3" : "up_proj", mixtral ? "w2" : "down_proj", gate_up_, down_);
    }
  }
  if (shared > 0) {
    add_mlp("shared_experts.", 0, shared, "gate_proj", "up_proj", "down_proj", shared_gate_up_,
            shared_down_);
  }

  MoeLayerWeights layer;
  layer.model_type = config_.model_type;
  layer.hidden = h;
  layer.intermediate = i;
  layer.num_experts = e;
  layer.shared_intermediate = shared;
  layer.swiglu = config_.swiglu;
  layer.router_config = config_.router;
  layer.router.num_experts = e;
  layer.router.hidden = h;
  layer.router.weight = vector(gpt_oss ? "router.weight" : "gate.weight", {e, h});
  if (gpt_oss) {
    layer.router.bias = vector("router.bias", {e});
    layer.bias_gate_up = vector("experts.gate_up_proj_bias", {e, 2 * i});
    layer.bias_down = vector("experts.down_proj_bias", {e, h});
    std::vector<float>& bias = layer.bias_gate_up;
    const std::vector<float> interleaved = bias;
    for (std::int64_t n = 0; n < e * i; ++n) {
      const std::int64_t expert = n / i, column = n % i;
      bias[at(expert * 2 * i + column)] = interleaved[at(2 * n)];
      bias[at(expert * 2 * i + i + column)] = interleaved[at(2 * n + 1)];
    }
  }
  if (config_.family == Family::deepseek_v3) {
    layer.router.selection_bias = vector("gate.e_score_correction_bias", {e});
  }
  layer.gate_up = load(gate_up_, e, 2 * i, h);
  layer.down = load(down_, e, h, i);
  layer.shared_gate_up = load(shared_gate_up_, 1, 2 * shared, h);
  layer.shared_down = load(shared_down_, 1, h, shared);
  return layer;
}

}  // namespace

MoeLayerWeights load_moe_layer(const std::filesystem::path& dir, std::int64_t layer) {
  const auto config_path = dir / "config.json";
  const io::MappedFile config_file(config_path);
  const HfConfig config = parse_hf_config(config_file.text(), config_path.string());
  check_moe_layer(config, layer, config_path.string());

  const std::string layer_prefix = "model.layers." + std::to_string(layer) + ".";
  const io::Safetensors file(dir, layer_prefix);
  // Mixtral's own name for the block; newer transformers use the others' name for it too.
  const std::string own = layer_prefix + "block_sparse_moe.";
  const bool is_own = config.family == Family::mixtral && file.find(own + "gate.weight") != nullptr;
  return LayerReader(file, config, is_own ? own : layer_prefix + "mlp.").read();
}

MoeConfig MoeLayerWeights::moe_config() const {
  MoeConfig config;
  config.hidden = hidden;
  config.intermediate = intermediate;
  config.num_experts = num_experts;
  config.topk = router_config.topk;
  config.shared_intermediate = shared_intermediate;
  config.swiglu = swiglu;
  return config;
}

ExpertWeights MoeLayerWeights::expert_weights(int rank, int ep_size) const {
  check(ep_size >= 1 && num_experts % ep_size == 0 && rank >= 0 && rank < ep_size,
        "expected a rank of an ep_size that divides {} experts, got rank {} of {}", num_experts,
        rank, ep_size);
  const std::int64_t local = num_experts / ep_size, first = rank * local;
  const std::int64_t h = hidden, i = intermediate;
  ExpertWeights w;
  w.gate_up = {gate_up.data() + first * 2 * i * h, DType::bf16, {local, 2 * i, h}};
  w.down = {down.data() + first * h * i, DType::bf16, {local, h, i}};
  if (!bias_gate_up.empty()) {
    w.bias_gate_up = {bias_gate_up.data() + first * 2 * i, DType::f32, {local, 2 * i}};
    w.bias_down = {bias_down.data() + first * h, DType::f32, {local, h}};
  }
  if (shared_intermediate > 0) {
    w.shared_gate_up = {shared_gate_up.data(), DType::bf16, {2 * shared_intermediate, h}};
    w.shared_down = {shared_down.data(), DType::bf16, {h, shared_intermediate}};
  }
  return w;
}

}  // namespace catamount::model
