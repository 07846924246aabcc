// The layers and variants that are timed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "catamount/moe.h"

namespace catamount::bench {

struct BenchCase {
  std::string name;     // the layer
  std::string variant;  // what is not plain about it
  MoeConfig config;     // max_tokens: of each rank
  bool biases = false;
  bool save = false;  // forward keeps what backward needs
  std::string routing = "uniform";

  std::int64_t rows() const { return config.ep_size * config.max_tokens * config.topk; }
  double flops() const {
    return 6.0 * static_cast<double>(config.hidden) * static_cast<double>(config.intermediate) *
           static_cast<double>(rows());
  }
};

inline BenchCase layer(const std::string& name, std::int64_t tokens, std::int64_t hidden,
                       std::int64_t intermediate, std::int64_t experts, std::int64_t topk) {
  BenchCase c;
  c.name = name;
  c.variant = "plain";
  c.config.hidden = hidden;
  c.config.intermediate = intermediate;
  c.config.num_experts = experts;
  c.config.topk = topk;
  c.config.max_tokens = tokens;
  c.config.timeout_s = 10;
  return c;
}

inline std::vector<BenchCase> layers() {
  std::vector<BenchCase> all = {
      layer("deepseek-v3", 16384, 7168, 2048, 32, 8),
      layer("qwen3-235b", 16384, 4096, 1536, 128, 8), layer("qwen3-30b", 32768, 2048, 768, 128, 8),
      layer("mixtral", 8192, 4096, 14336, 8, 2), layer("gpt-oss-120b", 16384, 2880, 2880, 128, 4)};
  all.back().biases = true;
  all.back().config.swiglu = {1.702F, 7.0F, 1.0F};
  return all;
}

// The five layers plain and with saved tensors, then one layer under everything else.
inline std::vector<BenchCase> bench_cases() {
  std::vector<BenchCase> all;
  const auto add = [&](BenchCase c, const std::string& variant, const auto& change) {
    c.variant = variant;
    change(c);
    all.push_back(std::move(c));
  };
  for (const BenchCase& c : layers()) {
    all.push_back(c);
    add(c, "saved", [](BenchCase& v) { v.save = true; });
  }
  const BenchCase base = layers()[1];
  for (const std::int64_t tokens : {1, 16, 128, 1024, 4096}) {
    add(base, "tokens" + std::to_string(tokens),
        [&](BenchCase& v) { v.config.max_tokens = tokens; });
  }
  for (const char* routing : {"zipf:1.2", "hot:1"}) {
    add(base, routing, [&](BenchCase& v) { v.routing = routing; });
  }
  for (const int ranks : {2, 4, 8}) {
    add(base, "virtual" + std::to_string(ranks), [&](BenchCase& v) {
      v.config.ep_size = ranks;
      v.config.max_tokens /= ranks;
    });
  }
  add(base, "macrobatches4",
      [](BenchCase& v) { v.config.capacity_rows = v.rows() / 4 + 128 * v.config.num_experts; });
  for (const int sms : {8, 16, 24}) {
    add(base, "comm_sms" + std::to_string(sms), [&](BenchCase& v) { v.config.comm_sms = sms; });
  }
  add(base, "reserve_sms16", [](BenchCase& v) { v.config.reserve_sms = 16; });
  return all;
}

}  // namespace catamount::bench
