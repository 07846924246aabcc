// `catamount verify`: many small layers against the oracle.
#include <fmt/core.h>
#include <fmt/format.h>

#include "commands.h"
#include "progress.h"
#include "run_options.h"

namespace catamount::tools {
namespace {

// The command that repeats a case.
std::string command_of(const RunOptions& o) {
  std::string text =
      fmt::format("catamount run --preset {} --scale {} --ranks {} --tokens {} --precision {}",
                  o.preset, o.scale, o.ranks, o.tokens, o.precision);
  text += fmt::format(" --routing {} --masked {} --keep {} --router-weight {}", o.routing, o.masked,
                      o.keep, o.router_weight);
  return text + fmt::format(" --capacity-rows {} --seed {}", o.capacity_rows, o.seed);
}

std::vector<RunOptions> sweep(bool full) {
  struct Model {
    const char* preset;
    std::int64_t scale;
  };
  std::vector<Model> models = {{"small", 4}, {"gpt-oss-120b", 32}, {"deepseek-v3", 64}};
  std::vector<const char*> routings = {"uniform", "hot:1"};
  std::vector<std::int64_t> capacities = {0, 128};
  if (full) {
    models.insert(models.end(), {{"qwen3-30b-a3b", 16}, {"mixtral-8x7b", 64}, {"kimi-k2", 64}});
    routings.insert(routings.end(), {"zipf:1.2", "empty-rank"});
    capacities.push_back(1);
  }
  std::vector<RunOptions> all;
  for (const Model& m : models) {
    for (const int ranks : {1, 2, 4}) {
      for (const char* precision : {"bf16", "mxfp8", "mxfp8-plain", "fp8-block"}) {
        for (const char* routing : routings) {
          if (ranks == 1 && std::string(routing) == "empty-rank") continue;
          for (const std::int64_t capacity : capacities) {
            RunOptions o;
            o.preset = m.preset;
            o.scale = m.scale;
            o.ranks = ranks;
            o.tokens.clear();  // unequal ranks, the last one empty
            for (int r = 0; r < ranks; ++r) {
              o.tokens += (r > 0 ? "," : "") +
                          std::to_string(r + 1 == ranks && ranks > 1 ? 0 : 70 - 23 * r);
            }
            o.precision = precision;
            o.routing = routing;
            o.capacity_rows = capacity;
            o.masked = capacity > 0 ? 0.2 : 0;
            o.keep = capacity > 0 ? "routing" : "pre-activations-and-x";
            o.router_weight = ranks == 2 ? "before-down" : "in-combine";
            o.seed = all.size();
            all.push_back(o);
          }
        }
      }
    }
  }
  return all;
}

int verify(bool full) {
  const std::vector<RunOptions> cases = sweep(full);
  Progress progress(static_cast<std::int64_t>(cases.size()));
  int failed = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    progress.show(static_cast<std::int64_t>(i), cases[i].preset + " " + cases[i].precision);
    const auto layer = make_layer(cases[i]);
    const auto peers = make_thread_peers(layer->config().ep_size, heap_bytes(layer->config()));
    layer->poison(*peers);
    layer->run_forward(*peers);
    std::vector<model::NamedComparison> all = layer->compare_forward();
    layer->run_backward(*peers);
    for (model::NamedComparison& c : layer->compare_backward()) all.push_back(std::move(c));
    std::string wrong;
    for (const model::NamedComparison& c : all) {
      if (!c.ok()) wrong += fmt::format(" {} {:.2e}", c.name, c.comparison.relative_error);
    }
    if (wrong.empty()) continue;
    ++failed;
    progress.clear();
    fmt::print("FAIL{}: {}\n", wrong, command_of(cases[i]));
  }
  progress.clear();
  fmt::print("{} of {} layers agree with the oracle, forward and backward\n",
             cases.size() - static_cast<std::size_t>(failed), cases.size());
  return failed == 0 ? 0 : 1;
}

}  // namespace

Command add_verify(CLI::App& app) {
  auto full = std::make_shared<bool>(false);
  CLI::App* sub = app.add_subcommand(
      "verify", "Compare a sweep of shapes, routings, rank counts and precisions with the oracle");
  sub->add_flag("--full,!--quick", *full, "The long sweep (default: the quick one)");
  sub->footer(
      "A case that fails is printed as the command that repeats it.\n"
      "Exit code: 0 all agree, 1 some do not, 2 an error.");
  return [full] { return verify(*full); };
}

}  // namespace catamount::tools
