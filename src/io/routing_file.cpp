#include "io/routing_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "catamount/peer_memory.h"
#include "io/check_io.h"
#include "io/file.h"

namespace catamount::io {
namespace {

constexpr std::size_t kMaxSlots = 64;  // MoeConfig::topk's bound
constexpr std::string_view kSpace = " \t\r";

struct Slot {
  std::int32_t expert;
  std::optional<float> weight;
};
using Token = std::vector<Slot>;

// The next word of `rest`, which loses it; empty at the end.
std::string_view next_word(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(kSpace), rest.size()));
  const std::string_view word = rest.substr(0, rest.find_first_of(kSpace));
  rest.remove_prefix(word.size());
  return word;
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

class RoutingParser {
 public:
  RoutingParser(std::int64_t num_experts, const std::string& file)
      : num_experts_(num_experts), file_(file) {}

  void add_line(std::string_view line) {
    ++line_number_;
    line = line.substr(0, line.find('#'));
    std::string_view rest = line;
    const std::string_view first = next_word(rest);
    if (first.empty()) return;
    if (first == "rank") {
      start_rank(rest);
    } else {
      add_token(line);
    }
  }

  RoutingFile finish() const {
    RoutingFile result;
    result.names_ranks = names_ranks_;
    for (const auto& tokens : ranks_) {
      for (const Token& token : tokens) {
        result.topk = std::max(result.topk, static_cast<std::int64_t>(token.size()));
      }
    }
    const auto topk = static_cast<std::size_t>(result.topk);
    for (const auto& tokens : ranks_) {
      RankRouting& rank = result.ranks.emplace_back();
      rank.tokens = static_cast<std::int64_t>(tokens.size());
      rank.topk_idx.assign(tokens.size() * topk, -1);
      rank.topk_weights.assign(tokens.size() * topk, 0.0F);
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        for (std::size_t k = 0; k < tokens[t].size(); ++k) {
          rank.topk_idx[t * topk + k] = tokens[t][k].expert;
          rank.topk_weights[t * topk + k] = tokens[t][k].weight.value_or(0.0F);
        }
      }
    }
    return result;
  }

 private:
  template <class... Args>
  void require(bool ok, CheckFormat<std::type_identity_t<Args>...> format, Args&&... args) const {
    if (ok) return;
    fail(ErrorCode::io, "{}:{}: {}", file_, line_number_,
         fmt::format(format.text, std::forward<Args>(args)...));
  }

  void start_rank(std::string_view rest) {
    require(names_ranks_ || ranks_.front().empty(),
            "expected no rank line after tokens that belong to no rank");
    const auto expected = names_ranks_ ? ranks_.size() : std::size_t{0};
    const std::string_view word = next_word(rest);
    require(parse_number<std::size_t>(word) == expected, "expected \"rank {}\", got \"rank {}\"",
            expected, word.substr(0, 24));
    require(next_word(rest).empty(), "expected nothing after \"rank {}\"", expected);
    require(expected < static_cast<std::size_t>(kMaxRanks), "expected at most {} ranks", kMaxRanks);
    if (names_ranks_) ranks_.emplace_back();
    names_ranks_ = true;
  }

  void add_token(std::string_view line) {
    Token token;
    for (auto word = next_word(line); !word.empty(); word = next_word(line)) {
      require(token.size() < kMaxSlots, "expected at most {} slots in a token", kMaxSlots);
      token.push_back(parse_slot(word));
    }
    const auto routed = std::count_if(token.begin(), token.end(),
                                      [](const Slot& slot) { return slot.expert >= 0; });
    const auto weighted = std::count_if(token.begin(), token.end(),
                                        [](const Slot& slot) { return slot.weight.has_value(); });
    require(weighted == 0 || weighted == routed,
            "expected weights in all {} routed slots or in none, got {}", routed, weighted);
    for (Slot& slot : token) {
      if (weighted == 0 && slot.expert >= 0) slot.weight = 1.0F / static_cast<float>(routed);
    }
    ranks_.back().push_back(std::move(token));
  }

  Slot parse_slot(std::string_view word) const {
    const auto colon = word.find(':');
    const std::string_view shown = word.substr(0, 24);
    const auto expert = parse_number<std::int64_t>(word.substr(0, colon));
    require(expert && *expert >= -1 && *expert < num_experts_,
            "expected an expert in [0, {}) or -1, got \"{}\"", num_experts_, shown);
    Slot slot{static_cast<std::int32_t>(*expert), std::nullopt};
    if (colon != std::string_view::npos) {
      require(*expert >= 0, "expected no weight in a masked slot, got \"{}\"", shown);
      slot.weight = parse_number<float>(word.substr(colon + 1));
      require(slot.weight && std::isfinite(*slot.weight),
              "expected a finite weight after the colon, got \"{}\"", shown);
    }
    return slot;
  }

  std::int64_t num_experts_;
  const std::string& file_;
  std::int64_t line_number_ = 0;
  bool names_ranks_ = false;
  std::vector<std::vector<Token>> ranks_{1};
};

}  // namespace

RoutingFile parse_routing(std::string_view text, std::int64_t num_experts,
                          const std::string& file) {
  check(num_experts >= 0 && num_experts <= INT32_MAX, "num_experts must be in [0, 2^31), got {}",
        num_experts);
  RoutingParser parser(num_experts, file);
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    parser.add_line(line);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return parser.finish();
}

RoutingFile read_routing(const std::filesystem::path& path, std::int64_t num_experts) {
  const MappedFile file(path);
  return parse_routing(file.text(), num_experts, path.string());
}

}  // namespace catamount::io
