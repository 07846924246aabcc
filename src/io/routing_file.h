// Routing as text, to replay a recorded or made-up one.
//
//     # up to the end of the line: a comment
//     rank 0                 the tokens of rank 0 follow
//     3:0.5 7:0.25 -1        one token: expert 3 with weight 0.5, expert 7, a masked slot
//     1 2                    without weights: the slots share 1 equally, here 0.5 each
//     -1                     a token that goes nowhere
//     rank 1                 ranks come in order, 0, 1, 2, ...; one without tokens is an empty rank
//
// A line is a token, a rank's name, or blank (skipped). All slots of a token have weights, or none
// has; masked ones never. The longest line gives topk, shorter ones are filled up with masked
// slots. A file without `rank` lines is a list of tokens that the reader may spread over ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace catamount::io {

struct RankRouting {
  std::int64_t tokens = 0;
  std::vector<std::int32_t> topk_idx;  // [tokens, topk]
  std::vector<float> topk_weights;     // [tokens, topk]; 0 in masked slots
};

struct RoutingFile {
  std::int64_t topk = 1;
  bool names_ranks = false;  // false: `ranks` has one element with every token
  std::vector<RankRouting> ranks;
};

// Experts must be in [0, num_experts). What is wrong is an Error(io) with the line's number.
RoutingFile parse_routing(std::string_view text, std::int64_t num_experts,
                          const std::string& file = "routing");
RoutingFile read_routing(const std::filesystem::path& path, std::int64_t num_experts);

}  // namespace catamount::io
