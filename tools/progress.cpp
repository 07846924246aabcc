#include "progress.h"

#include <fmt/core.h>
#include <unistd.h>

namespace catamount::tools {

Progress::Progress(std::int64_t total) : total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::show(std::int64_t done, const std::string& what) {
  if (!terminal_ || total_ <= 0) return;
  constexpr std::int64_t kWidth = 30;
  const auto filled = static_cast<std::size_t>(kWidth * done / total_);
  fmt::print(stderr, "\r\033[K[{}{}] {}/{} {}", std::string(filled, '#'),
             std::string(static_cast<std::size_t>(kWidth) - filled, '.'), done, total_,
             what.substr(0, 40));
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (shown_) fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace catamount::tools
