// A table of text: columns as wide as their widest cell, numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace catamount::tools {

class Table {
 public:
  // The first column is aligned to the left, the others to the right.
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "12.3 MB": decimal units.
std::string bytes_text(double bytes);

}  // namespace catamount::tools
