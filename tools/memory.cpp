#include "memory.h"

#include <fstream>
#include <string>

#include "core/check.h"

namespace catamount::tools {
namespace {

// Bytes that can still be had; 0: unknown.
double available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::string unit;
  double kibibytes = 0;
  while (file >> name >> kibibytes) {
    std::getline(file, unit);
    if (name == "MemAvailable:") return kibibytes * 1024;
  }
  return 0;
}

double needed_bytes(const RunOptions& o, const MoeConfig& c) {
  const double weights =
      3.0 * static_cast<double>(c.hidden) *
      static_cast<double>(c.num_experts * c.intermediate + o.ranks * c.shared_intermediate);
  // BF16 weights, FP32 gradients; what the oracle holds in FP64 is measured, rounded down.
  double bytes_per_weight = o.backward ? 6.0 : 2.0;
  if (o.verify) bytes_per_weight += o.backward ? 20.0 : 12.0;
  const auto heaps = static_cast<double>(heap_bytes(c)) * o.ranks;
  return weights * bytes_per_weight + heaps;
}

}  // namespace

void check_memory(const RunOptions& o, const MoeConfig& config) {
  constexpr double kGigabyte = 1e9;
  const double available = available_bytes();
  const double needed = needed_bytes(o, config);
  if (available == 0 || needed <= available) return;
  fail(ErrorCode::not_available,
       "the layer needs at least {:.0f} GB of memory, but {:.0f} GB are free: scale it down "
       "(--scale 8), or leave work out (--no-verify, --no-backward)",
       needed / kGigabyte, available / kGigabyte);
}

}  // namespace catamount::tools
