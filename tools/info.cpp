// `catamount info`: the machine, the backends, the limits.
#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "catamount/peer_memory.h"
#include "catamount/version.h"
#include "commands.h"
#include "core/tile.h"
#include "model/presets.h"

namespace catamount::tools {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

// Asks for the smallest heap there is: the error says what is missing.
std::string cuda_backend() {
  try {
    make_virtual_peers(1, std::size_t{1} << 20);
    return "forward, BF16";
  } catch (const Error& e) {
    return e.what();
  }
}

int info(bool as_json) {
  nlohmann::ordered_json j;
  j["version"] = kVersion;
  j["cpu"] = cpu_model();
  j["threads"] = std::thread::hardware_concurrency();
  j["backends"] = {{"cpu", "GEMMs by oneDNN"}, {"cuda", cuda_backend()}};
  j["limits"] = {{"ranks", kMaxRanks},
                 {"topk", 64},
                 {"hidden and intermediate, BF16", "multiples of 8"},
                 {"hidden and intermediate, FP8", "multiples of 32"},
                 {"row block", kBlockRows}};
  for (const model::Preset& p : model::presets()) {
    j["presets"][p.name] = fmt::format("hidden {}, intermediate {}, {} experts, top-{}", p.hidden,
                                       p.intermediate, p.num_experts, p.router.topk);
  }
  if (as_json) {
    fmt::print("{}\n", j.dump(2));
    return 0;
  }
  for (const auto& [key, value] : j.items()) {
    if (!value.is_object()) {
      fmt::print("{:<10} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
      continue;
    }
    fmt::print("{}\n", key);
    for (const auto& [name, text] : value.items()) {
      fmt::print("  {:<32} {}\n", name, text.is_string() ? text.get<std::string>() : text.dump());
    }
  }
  return 0;
}

}  // namespace

Command add_info(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* sub = app.add_subcommand("info", "Show this machine, the backends and the limits");
  sub->add_flag("--json", *json, "Print one JSON object");
  return [json] { return info(*json); };
}

}  // namespace catamount::tools
