#include "model/routing_generators.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "model/random.h"

namespace catamount::model {
namespace {

template <class Number>
bool parse_number(const std::string& text, Number* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc{} && stop == end;
}

// `topk` distinct experts, each drawn by weight among those that are left.
void draw_distinct(const std::vector<double>& weight, std::int64_t topk, Random& random,
                   std::int32_t* out) {
  std::vector<double> left = weight;
  for (std::int64_t k = 0; k < topk; ++k) {
    const double total = std::accumulate(left.begin(), left.end(), 0.0);
    double point = random.uniform() * total;
    std::size_t e = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i] <= 0) continue;
      e = i;  // the last one with weight, if rounding lets the point pass the end
      point -= left[i];
      if (point < 0) break;
    }
    out[k] = static_cast<std::int32_t>(e);
    left[e] = 0;
  }
}

std::vector<double> expert_weights(const RoutingSpec& spec, std::int64_t num_experts, int ep_size) {
  std::vector<double> weight(static_cast<std::size_t>(num_experts), 1.0);
  if (spec.kind == RoutingKind::zipf) {
    for (std::size_t e = 0; e < weight.size(); ++e) {
      weight[e] = std::pow(static_cast<double>(e + 1), -spec.exponent);
    }
  } else if (spec.kind == RoutingKind::empty_rank) {
    const std::int64_t used = num_experts - num_experts / ep_size;
    std::fill(weight.begin() + used, weight.end(), 0.0);
  }
  return weight;
}

}  // namespace

RoutingSpec parse_routing_spec(const std::string& text) {
  const auto colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const bool has_value = colon != std::string::npos;
  const std::string value = has_value ? text.substr(colon + 1) : "";
  RoutingSpec spec;
  if (kind == "uniform" && !has_value) return spec;
  if (kind == "empty-rank" && !has_value) {
    spec.kind = RoutingKind::empty_rank;
    return spec;
  }
  if (kind == "zipf") {
    spec.kind = RoutingKind::zipf;
    check(parse_number(value, &spec.exponent) && spec.exponent >= 0 && spec.exponent <= 10,
          "expected zipf:S with S in [0, 10], got \"{}\"", text);
    return spec;
  }
  if (kind == "hot") {
    spec.kind = RoutingKind::hot;
    check(parse_number(value, &spec.hot) && spec.hot >= 1,
          "expected hot:N with N at least 1, got \"{}\"", text);
    return spec;
  }
  fail(ErrorCode::invalid_argument,
       "expected a routing of uniform, zipf:S, hot:N or empty-rank, got \"{}\"", text);
}

std::string to_string(const RoutingSpec& spec) {
  switch (spec.kind) {
    case RoutingKind::uniform:
      return "uniform";
    case RoutingKind::zipf:
      return fmt::format("zipf:{}", spec.exponent);
    case RoutingKind::hot:
      return fmt::format("hot:{}", spec.hot);
    case RoutingKind::empty_rank:
      return "empty-rank";
  }
  return "unknown";
}

Routing make_routing(const RoutingSpec& spec, std::int64_t tokens, std::int64_t topk,
                     std::int64_t num_experts, int ep_size, std::uint64_t seed) {
  check(spec.kind != RoutingKind::hot || spec.hot <= num_experts,
        "hot must be at most num_experts {}, got {}", num_experts, spec.hot);
  for (const double fraction : {spec.masked, spec.repeated}) {
    check(fraction >= 0 && fraction <= 1, "expected a fraction of slots in [0, 1], got {}",
          fraction);
  }
  const std::vector<double> weight = expert_weights(spec, num_experts, ep_size);
  const auto usable = std::count_if(weight.begin(), weight.end(), [](double w) { return w > 0; });
  check(spec.kind == RoutingKind::hot || topk <= usable,
        "{} routing needs topk {} distinct experts, but only {} are left", to_string(spec), topk,
        usable);
  Random random(seed);
  Routing routing;
  routing.topk_idx.resize(static_cast<std::size_t>(tokens * topk));
  routing.topk_weights.resize(routing.topk_idx.size());
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::int32_t* idx = routing.topk_idx.data() + t * topk;
    float* weights = routing.topk_weights.data() + t * topk;
    if (spec.kind == RoutingKind::hot) {
      for (std::int64_t k = 0; k < topk; ++k)
        idx[k] = static_cast<std::int32_t>(random.below(spec.hot));
    } else {
      draw_distinct(weight, topk, random, idx);
    }
    for (std::int64_t k = 1; k < topk; ++k) {
      if (random.uniform() < spec.repeated) idx[k] = idx[k - 1];
    }
    double sum = 0;
    for (std::int64_t k = 0; k < topk; ++k) {
      weights[k] = static_cast<float>(0.1 + random.uniform());
      sum += static_cast<double>(weights[k]);
    }
    for (std::int64_t k = 0; k < topk; ++k) {
      weights[k] = static_cast<float>(static_cast<double>(weights[k]) / sum);
      if (random.uniform() < spec.masked) idx[k] = -1;
    }
  }
  return routing;
}

}  // namespace catamount::model
