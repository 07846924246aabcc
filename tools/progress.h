// A progress bar on stderr, where that is a terminal.
#pragma once

#include <cstdint>
#include <string>

namespace catamount::tools {

class Progress {
 public:
  explicit Progress(std::int64_t total);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `what` is being done now, after `done` of `total`.
  void show(std::int64_t done, const std::string& what);
  void clear();

 private:
  std::int64_t total_;
  bool terminal_;
  bool shown_ = false;
};

}  // namespace catamount::tools
