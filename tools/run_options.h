// What `catamount run` was asked to do, and the layer that follows from it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/layer_case.h"

namespace catamount::tools {

struct RunOptions {
  std::string preset = "small";
  std::int64_t scale = 1;
  int ranks = 8;
  std::string tokens = "128";  // one number, or one per rank: 128,0,7
  std::string precision = "bf16";
  std::string keep = "pre-activations";
  std::string router_weight = "in-combine";
  std::string routing = "uniform";  // or file:PATH
  double masked = 0;
  std::int64_t capacity_rows = 0;
  int threads = 0;
  double timeout_s = 60;
  std::uint64_t seed = 0;
  bool backward = true;
  bool verify = true;
  bool json = false;
  std::string checkpoint, hidden, output;
  std::int64_t layer = -1;
};

// Raises Error where options contradict each other or a file is broken. Nothing has run yet.
std::unique_ptr<model::LayerCase> make_layer(const RunOptions& options);

// The options' spelling of enumerations; Error(invalid_argument) lists what there is.
Precision parse_precision(const std::string& text);

}  // namespace catamount::tools
