// Any text is either a routing within its bounds, or an Error(io).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "catamount/error.h"
#include "io/routing_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace catamount;
  constexpr std::int64_t kExperts = 16;
  try {
    const auto file = io::parse_routing({reinterpret_cast<const char*>(data), size}, kExperts);
    for (const io::RankRouting& rank : file.ranks) {
      const auto slots = static_cast<std::size_t>(rank.tokens * file.topk);
      if (rank.topk_idx.size() != slots || rank.topk_weights.size() != slots) std::abort();
      for (const std::int32_t id : rank.topk_idx) {
        if (id < -1 || id >= kExperts) std::abort();
      }
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io) std::abort();
  }
  return 0;
}
