#include "run_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <numeric>

#include "core/check.h"
#include "io/matrix_file.h"
#include "io/routing_file.h"
#include "memory.h"
#include "model/checkpoint.h"
#include "model/presets.h"

namespace catamount::tools {
namespace {

template <class T>
T parse_name(const char* what, const std::string& text, const std::map<std::string, T>& names) {
  if (const auto found = names.find(text); found != names.end()) return found->second;
  std::string all;
  for (const auto& [name, value] : names) all += (all.empty() ? "" : ", ") + name;
  fail(ErrorCode::invalid_argument, "{} must be one of {}, got \"{}\"", what, all, text);
}

std::vector<std::int64_t> per_rank(const RunOptions& o) {
  std::vector<std::int64_t> tokens;
  std::vector<std::string> numbers = CLI::detail::split(o.tokens, ',');
  if (o.tokens.empty() || o.tokens.back() == ',') numbers.emplace_back();
  for (const std::string& text : numbers) {
    std::int64_t number = -1;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    check(error == std::errc{} && stop == text.data() + text.size() && number >= 0,
          "--tokens must be one number or one per rank (128,0,7), none negative, got \"{}\"",
          o.tokens);
    tokens.push_back(number);
  }
  if (tokens.size() == 1) tokens.assign(static_cast<std::size_t>(o.ranks), tokens[0]);
  check(tokens.size() == static_cast<std::size_t>(o.ranks),
        "--tokens must be one number or one for each of {} ranks, got {} numbers", o.ranks,
        tokens.size());
  return tokens;
}

// `total` tokens as evenly as can be; the first ranks have the odd ones.
std::vector<std::int64_t> spread(std::int64_t total, int ranks) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(ranks), total / ranks);
  for (std::int64_t r = 0; r < total % ranks; ++r) ++tokens[static_cast<std::size_t>(r)];
  return tokens;
}

template <class T>
std::vector<T> slice(const std::vector<T>& all, std::int64_t begin, std::int64_t size) {
  return {all.begin() + begin, all.begin() + begin + size};
}

void set_common(const RunOptions& o, model::LayerCaseOptions* c) {
  check(o.ranks >= 1 && o.ranks <= kMaxRanks, "--ranks must be in [1, {}], got {}", kMaxRanks,
        o.ranks);
  constexpr int kMostThreads = 1024;
  check(o.threads >= 0 && o.threads <= kMostThreads, "--threads must be in [0, {}], got {}",
        kMostThreads, o.threads);
  check(o.masked >= 0 && o.masked <= 1, "--masked must be in [0, 1], got {}", o.masked);
  c->config.ep_size = o.ranks;
  c->config.precision = parse_precision(o.precision);
  c->config.keep = parse_name<Keep>("--keep", o.keep,
                                    {{"routing", Keep::routing},
                                     {"pre-activations", Keep::pre_activations},
                                     {"pre-activations-and-x", Keep::pre_activations_and_x}});
  c->config.router_weight = parse_name<RouterWeight>(
      "--router-weight", o.router_weight,
      {{"in-combine", RouterWeight::in_combine}, {"before-down", RouterWeight::before_down}});
  c->config.capacity_rows = o.capacity_rows;
  c->config.threads_per_rank = o.threads;
  c->config.timeout_s = o.timeout_s;
  c->seed = o.seed;
  c->save = o.backward;
}

constexpr const char* kFilePrefix = "file:";

// Rows of a routing file to ranks: as it says, or spread evenly.
void apply_routing_file(const RunOptions& o, model::LayerCaseOptions* c,
                        std::vector<model::Routing>* routings) {
  const std::string path = o.routing.substr(std::string(kFilePrefix).size());
  const io::RoutingFile file = io::read_routing(path, c->config.num_experts);
  c->config.topk = file.topk;
  const auto add = [&](const io::RankRouting& from, std::int64_t begin, std::int64_t tokens) {
    routings->push_back({slice(from.topk_idx, begin * file.topk, tokens * file.topk),
                         slice(from.topk_weights, begin * file.topk, tokens * file.topk)});
  };
  if (file.names_ranks) {
    check(file.ranks.size() == static_cast<std::size_t>(o.ranks),
          "{} has {} ranks, but --ranks is {}", path, file.ranks.size(), o.ranks);
    c->tokens.clear();
    for (const io::RankRouting& rank : file.ranks) {
      c->tokens.push_back(rank.tokens);
      add(rank, 0, rank.tokens);
    }
    return;
  }
  c->tokens = spread(file.ranks[0].tokens, o.ranks);
  std::int64_t begin = 0;
  for (const std::int64_t tokens : c->tokens) {
    add(file.ranks[0], begin, tokens);
    begin += tokens;
  }
}

std::unique_ptr<model::LayerCase> make_preset_layer(const RunOptions& o) {
  check(o.hidden.empty() && o.output.empty() && o.layer < 0,
        "--hidden, --output and --layer belong to --checkpoint");
  const model::Preset preset = model::scaled(model::find_preset(o.preset), o.scale);
  model::LayerCaseOptions c;
  c.config = model::moe_config(preset);
  c.biases = preset.expert_biases;
  set_common(o, &c);
  c.tokens = per_rank(o);
  std::vector<model::Routing> routings;
  if (o.routing.rfind(kFilePrefix, 0) == 0) {
    apply_routing_file(o, &c, &routings);
  } else {
    c.routing = model::parse_routing_spec(o.routing);
    c.routing.masked = o.masked;
  }
  c.config.max_tokens = *std::max_element(c.tokens.begin(), c.tokens.end());
  check_memory(o, c.config);
  auto layer = std::make_unique<model::LayerCase>(c);
  for (std::size_t r = 0; r < routings.size(); ++r) {
    layer->set_routing(static_cast<int>(r), std::move(routings[r]));
  }
  return layer;
}

// A layer of a real model: its router decides, on the hidden states of a file or on random ones.
std::unique_ptr<model::LayerCase> make_checkpoint_layer(const RunOptions& o) {
  check(o.layer >= 0, "--checkpoint needs --layer N");
  check(o.routing == "uniform" && o.masked == 0,
        "the checkpoint's router decides: --routing and --masked must be left out");
  if (!o.output.empty()) io::check_matrix_name(o.output);
  model::MoeLayerWeights weights = model::load_moe_layer(o.checkpoint, o.layer);
  model::LayerCaseOptions c;
  c.config = weights.moe_config();
  c.biases = !weights.bias_gate_up.empty();
  c.random_weights = false;
  set_common(o, &c);
  io::Matrix hidden;
  if (!o.hidden.empty()) {
    hidden = io::read_matrix(o.hidden);
    check(hidden.cols == weights.hidden, "{} has rows of {} values, but the layer's hidden is {}",
          o.hidden, hidden.cols, weights.hidden);
    c.tokens = spread(hidden.rows, o.ranks);
  } else {
    c.tokens = per_rank(o);
  }
  auto layer = std::make_unique<model::LayerCase>(c);
  layer->set_weights({std::move(weights.gate_up), std::move(weights.down),
                      std::move(weights.bias_gate_up), std::move(weights.bias_down),
                      std::move(weights.shared_gate_up), std::move(weights.shared_down)});
  std::int64_t row = 0;
  for (int r = 0; r < o.ranks; ++r) {
    const std::int64_t tokens = c.tokens[static_cast<std::size_t>(r)];
    if (!o.hidden.empty()) {
      std::vector<Bf16> x(static_cast<std::size_t>(tokens * hidden.cols));
      to_bf16(hidden.values.data() + row * hidden.cols, tokens * hidden.cols, x.data());
      layer->set_hidden(r, std::move(x));
      row += tokens;
    }
    const std::vector<Bf16>& x = layer->ranks()[static_cast<std::size_t>(r)].x;
    layer->set_routing(r, model::route({x.data(), DType::bf16, {tokens, c.config.hidden}},
                                       weights.router, weights.router_config));
  }
  return layer;
}

}  // namespace

Precision parse_precision(const std::string& text) {
  return parse_name<Precision>("--precision", text,
                               {{"bf16", Precision::bf16},
                                {"mxfp8", Precision::mxfp8},
                                {"mxfp8-plain", Precision::mxfp8_plain},
                                {"fp8-block", Precision::fp8_block}});
}

std::unique_ptr<model::LayerCase> make_layer(const RunOptions& o) {
  return o.checkpoint.empty() ? make_preset_layer(o) : make_checkpoint_layer(o);
}

}  // namespace catamount::tools
