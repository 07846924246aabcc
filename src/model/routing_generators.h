// Routings to test and time with: balanced, skewed, degenerate.
#pragma once

#include <cstdint>
#include <string>

#include "model/router.h"

namespace catamount::model {

enum class RoutingKind : std::uint8_t {
  uniform,     // topk distinct experts of each token, all alike
  zipf,        // distinct experts, the i-th most popular with weight 1 / (i + 1)^exponent
  hot,         // every slot goes to the first `hot` experts (a token may name one twice)
  empty_rank,  // uniform over the experts of all ranks but the last
};

struct RoutingSpec {
  RoutingKind kind = RoutingKind::uniform;
  double exponent = 1.0;  // zipf
  std::int64_t hot = 1;   // hot
  double masked = 0.0;    // fraction of slots set to -1
  double repeated = 0.0;  // fraction of slots that name the expert of the slot before them
};

// "uniform", "zipf:1.2", "hot:3", "empty-rank". Raises Error(invalid_argument).
RoutingSpec parse_routing_spec(const std::string& text);
std::string to_string(const RoutingSpec& spec);

// Raises Error(invalid_argument) where the experts do not suffice.
// Weights are positive and sum to 1 over a token's slots, masked ones (-1) included.
Routing make_routing(const RoutingSpec& spec, std::int64_t tokens, std::int64_t topk,
                     std::int64_t num_experts, int ep_size, std::uint64_t seed);

}  // namespace catamount::model
