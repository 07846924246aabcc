// The case list of the layer: every backend runs it, forward and backward, against the oracle.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/layer_case.h"

namespace catamount::test {

struct NamedCase {
  std::string name;
  model::LayerCaseOptions options;
};

// Plain starting point: 2 ranks, 8 experts, top-2, sizes that are no multiple of any tile.
inline model::LayerCaseOptions base_case() {
  model::LayerCaseOptions o;
  o.config.hidden = 72;
  o.config.intermediate = 200;
  o.config.num_experts = 8;
  o.config.topk = 2;
  o.config.ep_size = 2;
  o.config.timeout_s = 30;
  o.tokens = {60, 41};
  o.seed = 7;
  return o;
}

template <class Change>
NamedCase make_case(const std::string& name, Change&& change) {
  NamedCase c{name, base_case()};
  change(c.options);
  return c;
}

inline std::vector<std::int64_t> same_tokens(int ranks, std::int64_t tokens) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(ranks), tokens);
}

// Token counts, ranks, experts, slots.
inline void add_size_cases(std::vector<NamedCase>* all) {
  using Options = model::LayerCaseOptions;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const std::int64_t tokens : {0, 1, 7, 129}) {
      all->push_back(make_case("ranks" + std::to_string(ranks) + "_tokens" + std::to_string(tokens),
                               [&](Options& o) {
                                 o.config.ep_size = ranks;
                                 o.config.num_experts = 24;
                                 o.tokens = same_tokens(ranks, tokens);
                               }));
    }
  }
  all->push_back(make_case("tokens1000", [](Options& o) {
    o.config.hidden = 32;
    o.config.intermediate = 40;
    o.tokens = {1000, 1000};
  }));
  all->push_back(make_case("unequal_ranks", [](Options& o) {
    o.config.ep_size = 4;
    o.tokens = {0, 300, 1, 57};
  }));
  for (std::int64_t topk = 1; topk <= 8; ++topk) {
    all->push_back(
        make_case("topk" + std::to_string(topk), [&](Options& o) { o.config.topk = topk; }));
  }
  for (const std::int64_t experts : {2, 4, 16, 64}) {
    all->push_back(make_case("experts" + std::to_string(experts),
                             [&](Options& o) { o.config.num_experts = experts; }));
  }
  all->push_back(make_case("one_expert", [](Options& o) {
    o.config.ep_size = 1;
    o.config.num_experts = 1;
    o.config.topk = 1;
    o.tokens = {130};
  }));
  const std::vector<std::pair<std::int64_t, std::int64_t>> widths = {
      {8, 8}, {360, 360}, {72, 136}, {264, 128}, {128, 256}, {2880, 8}};
  for (const auto& [hidden, intermediate] : widths) {
    all->push_back(make_case("h" + std::to_string(hidden) + "_i" + std::to_string(intermediate),
                             [hidden = hidden, intermediate = intermediate](Options& o) {
                               o.config.hidden = hidden;
                               o.config.intermediate = intermediate;
                             }));
  }
}

// Routings, forms of the layer, what is kept, macrobatches.
inline void add_form_cases(std::vector<NamedCase>* all) {
  using Options = model::LayerCaseOptions;
  for (const char* spec : {"zipf:1.5", "hot:1", "hot:3", "empty-rank"}) {
    std::string name = spec;
    for (char& c : name) {
      if (c == ':' || c == '.' || c == '-') c = '_';
    }
    all->push_back(make_case("routing_" + name, [&](Options& o) {
      o.routing = model::parse_routing_spec(spec);
      o.tokens = {200, 150};
    }));
  }
  all->push_back(make_case("masked", [](Options& o) { o.routing.masked = 0.4; }));
  all->push_back(make_case("all_masked", [](Options& o) { o.routing.masked = 1.0; }));
  all->push_back(make_case("separate_gate_up", [](Options& o) { o.fused_gate_up = false; }));
  all->push_back(make_case("ids_64bit", [](Options& o) { o.idx_64bit = true; }));
  all->push_back(make_case("router_weight_before_down", [](Options& o) {
    o.config.router_weight = RouterWeight::before_down;
    o.biases = true;
  }));
  all->push_back(make_case("biases", [](Options& o) { o.biases = true; }));
  all->push_back(make_case("gpt_oss_form", [](Options& o) {
    o.biases = true;
    o.fused_gate_up = false;
    o.config.swiglu = {1.702F, 1.0F, 1.0F};  // a limit that many values reach
  }));
  all->push_back(make_case("shared_expert", [](Options& o) {
    o.config.shared_intermediate = 104;
    o.tokens = {260, 41};
  }));
  for (const Keep keep : {Keep::routing, Keep::pre_activations, Keep::pre_activations_and_x}) {
    for (const std::int64_t capacity : {0, 1, 128, 300}) {
      const std::string name =
          "keep" + std::to_string(static_cast<int>(keep)) + "_capacity" + std::to_string(capacity);
      all->push_back(make_case(name, [&](Options& o) {
        o.config.keep = keep;
        o.config.capacity_rows = capacity;
        o.config.shared_intermediate = 64;
        o.biases = true;
        o.routing = model::parse_routing_spec("zipf:2");
        o.routing.masked = 0.1;
        o.tokens = {400, 150};
      }));
    }
  }
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const std::int64_t capacity : {0, 128}) {
      all->push_back(make_case(
          "accumulate_" + std::string(to_string(dtype)) + "_capacity" + std::to_string(capacity),
          [&](Options& o) {
            o.accumulate = true;
            o.grad_dtype = dtype;
            o.biases = true;
            o.config.capacity_rows = capacity;
            o.config.num_experts = 4;
            o.tokens = {500, 400};
          }));
    }
  }
  all->push_back(make_case("gradients_bf16", [](Options& o) { o.grad_dtype = DType::bf16; }));
}

inline void add_precision_cases(std::vector<NamedCase>* all) {
  using Options = model::LayerCaseOptions;
  for (const Precision precision :
       {Precision::mxfp8, Precision::mxfp8_plain, Precision::fp8_block}) {
    for (const std::int64_t hidden : {32, 160, 256}) {
      for (const std::int64_t capacity : {0, 128}) {
        all->push_back(make_case("fp8_" + std::to_string(static_cast<int>(precision)) + "_h" +
                                     std::to_string(hidden) + "_capacity" +
                                     std::to_string(capacity),
                                 [&](Options& o) {
                                   o.config.precision = precision;
                                   o.config.hidden = hidden;
                                   o.config.intermediate = 192;
                                   o.config.shared_intermediate = 96;
                                   o.config.capacity_rows = capacity;
                                   o.biases = true;
                                   o.tokens = {150, 90};
                                 }));
      }
    }
  }
}

inline std::vector<NamedCase> layer_cases() {
  std::vector<NamedCase> all;
  add_size_cases(&all);
  add_form_cases(&all);
  add_precision_cases(&all);
  return all;
}

inline void expect_ok(const std::vector<model::NamedComparison>& all) {
  for (const model::NamedComparison& c : all) {
    EXPECT_TRUE(c.ok()) << c.name << ": relative error " << c.comparison.relative_error << " > "
                        << c.bound << ", non-finite mismatches "
                        << c.comparison.nonfinite_mismatches;
    EXPECT_EQ(c.comparison.missing, 0) << c.name;
  }
}

}  // namespace catamount::test
