// `catamount run`: one layer, forward and backward, timed and compared with the oracle.
#include <fmt/core.h>
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "commands.h"
#include "core/stage.h"
#include "io/matrix_file.h"
#include "progress.h"
#include "run_options.h"
#include "table.h"

namespace catamount::tools {
namespace {

struct PassResult {
  const char* name = "";
  double seconds = 0;                                  // of the slowest rank
  std::map<std::string, PassStats::StageTime> stages;  // summed over ranks
  double wait_s = 0;
  std::vector<std::int64_t> rows;  // of each rank
  std::int64_t pulled = 0, sent_home = 0, macrobatches = 0;
  std::vector<model::NamedComparison> comparisons;
  std::uint64_t checksum = 0;

  double imbalance() const {
    const auto total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    const auto most = *std::max_element(rows.begin(), rows.end());
    return total == 0 ? 1.0
                      : static_cast<double>(most) * static_cast<double>(rows.size()) /
                            static_cast<double>(total);
  }
};

PassResult collect(const char* name, const std::vector<model::RankTensors>& ranks,
                   PassStats model::RankTensors::*member) {
  PassResult result;
  result.name = name;
  for (const model::RankTensors& rank : ranks) {
    const PassStats& stats = rank.*member;
    result.seconds = std::max(result.seconds, stats.total_s);
    result.wait_s += stats.wait_s;
    result.rows.push_back(stats.rows);
    result.pulled += stats.bytes_pulled;
    result.sent_home += stats.bytes_sent_home;
    result.macrobatches = std::max(result.macrobatches, stats.macrobatches);
    for (const PassStats::StageTime& s : stats.stages) {
      PassStats::StageTime& sum = result.stages[s.stage];
      sum.stage = s.stage;
      sum.busy_s += s.busy_s;
      sum.tasks += s.tasks;
    }
  }
  return result;
}

std::string describe(const model::LayerCase& layer) {
  const MoeConfig& c = layer.config();
  std::int64_t tokens = 0;
  for (const std::int64_t t : layer.options().tokens) tokens += t;
  return fmt::format(
      "hidden {}, intermediate {}, {} experts, top-{}{}; {} tokens on {} ranks (CPU)", c.hidden,
      c.intermediate, c.num_experts, c.topk,
      c.shared_intermediate > 0 ? fmt::format(", shared expert of {}", c.shared_intermediate) : "",
      tokens, c.ep_size);
}

std::string join(const std::vector<std::int64_t>& numbers) {
  return fmt::format("{}", fmt::join(numbers, " "));
}

void print_pass(const PassResult& p) {
  fmt::print("\n{}: {:.1f} ms\n", p.name, p.seconds * 1e3);
  double busy = p.wait_s;
  for (const auto& [name, stage] : p.stages) busy += stage.busy_s;
  Table stages({"stage", "tasks", "busy ms", "share"});
  const auto share = [&](double s) {
    return fmt::format("{:.1f} %", busy > 0 ? 100 * s / busy : 0);
  };
  for (int i = 0; i < kNumStages; ++i) {
    const auto found = p.stages.find(to_string(static_cast<Stage>(i)));
    if (found == p.stages.end()) continue;
    const PassStats::StageTime& s = found->second;
    stages.add(
        {s.stage, std::to_string(s.tasks), fmt::format("{:.2f}", s.busy_s * 1e3), share(s.busy_s)});
  }
  stages.add({"waiting", "", fmt::format("{:.2f}", p.wait_s * 1e3), share(p.wait_s)});
  fmt::print("{}", stages.text());
  fmt::print("rows per rank: {} (max / mean {:.2f}), macrobatches: {}\n", join(p.rows),
             p.imbalance(), p.macrobatches);
  fmt::print("between ranks: {} pulled, {} sent home\n", bytes_text(static_cast<double>(p.pulled)),
             bytes_text(static_cast<double>(p.sent_home)));
}

void print_errors(const std::vector<PassResult>& passes) {
  Table errors({"tensor", "error against the oracle", "bound", ""});
  for (const PassResult& p : passes) {
    for (const model::NamedComparison& c : p.comparisons) {
      errors.add({c.name, fmt::format("{:.2e}", c.comparison.relative_error),
                  fmt::format("{:.0e}", c.bound), c.ok() ? "ok" : "FAIL"});
    }
  }
  fmt::print("\n{}", errors.text());
}

nlohmann::ordered_json to_json(const PassResult& p) {
  nlohmann::ordered_json j;
  j["pass"] = p.name;
  j["ms"] = p.seconds * 1e3;
  for (const auto& [name, s] : p.stages) {
    j["stages"][name] = {{"busy_ms", s.busy_s * 1e3}, {"tasks", s.tasks}};
  }
  j["wait_ms"] = p.wait_s * 1e3;
  j["rows_per_rank"] = p.rows;
  j["imbalance"] = p.imbalance();
  j["macrobatches"] = p.macrobatches;
  j["bytes_pulled"] = p.pulled;
  j["bytes_sent_home"] = p.sent_home;
  j["checksum"] = fmt::format("{:016x}", p.checksum);
  for (const model::NamedComparison& c : p.comparisons) {
    j["errors"][c.name] = {
        {"relative", c.comparison.relative_error}, {"bound", c.bound}, {"ok", c.ok()}};
  }
  return j;
}

void write_output(const RunOptions& o, const model::LayerCase& layer,
                  const std::vector<model::RankTensors>& ranks) {
  io::Matrix out;
  out.cols = layer.config().hidden;
  for (const model::RankTensors& rank : ranks) {
    out.rows += rank.tokens;
    for (const Bf16 v : rank.out) out.values.push_back(to_float(v));
  }
  io::write_matrix(o.output, out);
}

int run(const RunOptions& o) {
  const std::unique_ptr<model::LayerCase> layer = make_layer(o);
  const auto peers = make_thread_peers(layer->config().ep_size, heap_bytes(layer->config()));
  std::vector<PassResult> passes;
  {
    Progress progress(o.backward ? 4 : 2);
    progress.show(0, "forward");
    layer->run_forward(*peers);
    passes.push_back(collect("forward", layer->ranks(), &model::RankTensors::forward_stats));
    passes.back().checksum = layer->forward_checksum();
    if (o.backward) {
      progress.show(1, "backward");
      layer->run_backward(*peers);
      passes.push_back(collect("backward", layer->ranks(), &model::RankTensors::backward_stats));
      passes.back().checksum = layer->backward_checksum();
    }
    if (o.verify) {
      progress.show(2, "oracle, forward");
      passes[0].comparisons = layer->compare_forward();
      if (o.backward) {
        progress.show(3, "oracle, backward");
        passes[1].comparisons = layer->compare_backward();
      }
    }
  }
  if (!o.output.empty()) write_output(o, *layer, layer->ranks());
  bool ok = true;
  for (const PassResult& p : passes) {
    for (const model::NamedComparison& c : p.comparisons) ok = ok && c.ok();
  }
  if (o.json) {
    nlohmann::ordered_json j;
    j["backend"] = "cpu";
    j["precision"] = o.precision;
    j["ranks"] = o.ranks;
    j["tokens"] = layer->options().tokens;
    j["seed"] = o.seed;
    for (const PassResult& p : passes) j["passes"].push_back(to_json(p));
    j["ok"] = ok;
    fmt::print("{}\n", j.dump(2));
    return ok ? 0 : 1;
  }
  fmt::print("{} layer, {}: {}\n", o.checkpoint.empty() ? o.preset : o.checkpoint, o.precision,
             describe(*layer));
  for (const PassResult& p : passes) print_pass(p);
  if (o.verify) print_errors(passes);
  return ok ? 0 : 1;
}

}  // namespace

Command add_run(CLI::App& app) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* run_app = app.add_subcommand(
      "run",
      "Run one layer over several ranks, forward and backward, and compare it with the oracle");
  run_app->add_option("--preset", o->preset,
                      "small, deepseek-v3, qwen3-235b-a22b, qwen3-30b-a3b, mixtral-8x7b, "
                      "gpt-oss-120b or kimi-k2 (default: small)");
  run_app->add_option(
      "--scale", o->scale,
      "Divide hidden, intermediate and experts by this, so that a laptop can run it");
  run_app->add_option("--ranks", o->ranks, "Expert-parallel ranks (default: 8)");
  run_app->add_option("--tokens", o->tokens,
                      "Tokens of every rank, or one number per rank: 128,0,7");
  run_app->add_option("--precision", o->precision, "bf16, mxfp8, mxfp8-plain or fp8-block");
  auto* backward = run_app->add_flag("--backward,!--no-backward", o->backward,
                                     "Run the backward pass too (default)");
  run_app->add_option("--routing", o->routing,
                      "uniform, zipf:S, hot:N, empty-rank or file:PATH (default: uniform)");
  run_app->add_option("--masked", o->masked, "Fraction of slots that are masked");
  run_app->add_option("--seed", o->seed, "Seed of weights, tokens and routing")
      ->check([](const std::string& text) {
        return text[0] == '-' ? "must not be negative, got " + text : std::string();
      });
  run_app->add_option("--keep", o->keep,
                      "What forward keeps: routing, pre-activations or pre-activations-and-x");
  run_app->add_option("--router-weight", o->router_weight, "in-combine or before-down");
  run_app->add_option("--capacity-rows", o->capacity_rows,
                      "Rows a rank holds at a time; more than that are macrobatched");
  run_app->add_option("--threads", o->threads, "Threads of each rank");
  run_app->add_option("--timeout", o->timeout_s, "Seconds after which a wait is an error");
  auto* checkpoint = run_app->add_option("--checkpoint", o->checkpoint,
                                         "Folder of a Hugging Face checkpoint; its router decides");
  run_app->add_option("--layer", o->layer, "Layer of the checkpoint")->needs(checkpoint);
  run_app->add_option("--hidden", o->hidden, "Hidden states, .npy or .safetensors")
      ->needs(checkpoint);
  run_app->add_option("--output", o->output, "Where the layer's output goes, .npy or .safetensors")
      ->needs(checkpoint);
  run_app->add_flag("!--no-verify", o->verify, "Skip the oracle");
  run_app->add_flag("--json", o->json, "Print one JSON object and nothing else");
  run_app->footer(
      "Examples:\n"
      "  catamount run --preset qwen3-30b-a3b --scale 16 --ranks 4 --tokens 64 --routing zipf:1.2\n"
      "  catamount run --ranks 3 --preset gpt-oss-120b --scale 32 --tokens 100,0,7 --precision "
      "mxfp8\n"
      "  catamount run --checkpoint DIR --layer 0 --hidden x.npy --output y.npy --ranks 1\n"
      "Exit code: 0 all within bounds, 1 a result is wrong, 2 an error.");
  return [o, backward] {
    // Real layers are run for their output, unless backward is asked for.
    if (!o->checkpoint.empty() && backward->count() == 0) o->backward = false;
    return run(*o);
  };
}

}  // namespace catamount::tools
