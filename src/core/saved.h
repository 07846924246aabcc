// The head of a saved buffer: proves that forward filled it, for this configuration and this T.
#pragma once

#include "catamount/moe.h"
#include "core/check.h"
#include "core/layout.h"

namespace catamount {

// FNV-1a over everything that decides what the buffer holds.
inline std::uint64_t saved_fingerprint(const MoeConfig& c, std::int64_t tokens) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&](std::uint64_t value) {
    for (int i = 0; i < 8; ++i) {
      hash = (hash ^ (value >> (8 * i) & 0xff)) * 0x100000001b3ULL;
    }
  };
  for (const std::int64_t v : {c.hidden, c.intermediate, c.num_experts, c.topk,
                               c.shared_intermediate, c.max_tokens, c.capacity_rows, tokens}) {
    mix(static_cast<std::uint64_t>(v));
  }
  mix(static_cast<std::uint64_t>(c.ep_size));
  mix(static_cast<std::uint64_t>(c.precision));
  mix(static_cast<std::uint64_t>(c.keep));
  return hash;
}

inline void check_saved_header(int rank, const MoeConfig& config, std::int64_t tokens,
                               const SavedBuffer& saved) {
  const auto& header = *static_cast<const SavedHeader*>(saved.data);
  check(header.magic == kSavedMagic && header.fingerprint == saved_fingerprint(config, tokens),
        "rank {}: saved was not filled by a forward of this configuration and {} tokens", rank,
        tokens);
}

}  // namespace catamount
