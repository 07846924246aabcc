#include "table.h"

#include <fmt/core.h>

#include <algorithm>

namespace catamount::tools {

std::string Table::text() const {
  std::vector<std::size_t> width(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  std::string text;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (std::size_t c = 0; c < rows_[r].size(); ++c) {
      line += c == 0 ? fmt::format("{:<{}}", rows_[r][c], width[c])
                     : fmt::format("  {:>{}}", rows_[r][c], width[c]);
    }
    text += line + "\n";
    if (r == 0) text += std::string(line.size(), '-') + "\n";
  }
  return text;
}

std::string bytes_text(double bytes) {
  for (const char* unit : {"B", "kB", "MB", "GB"}) {
    if (bytes < 1000) return fmt::format("{:.{}f} {}", bytes, unit[0] == 'B' ? 0 : 1, unit);
    bytes /= 1000;
  }
  return fmt::format("{:.1f} TB", bytes);
}

}  // namespace catamount::tools
