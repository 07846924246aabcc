// The one exception type of the library. Messages say what was expected and what came.
#pragma once

#include <stdexcept>
#include <string>

namespace catamount {

enum class ErrorCode {
  invalid_argument,  // a shape, dtype, option or pointer the call cannot take
  invalid_routing,   // an expert id outside [-1, num_experts)
  timeout,           // a bounded wait ran out: a peer or a stage never arrived
  not_available,     // the backend, device or feature is not in this build or machine
  io,                // a file is missing, malformed or cannot be written
  internal,          // a broken promise of the library itself: please report it
};

// Where a call was written. (std::source_location is missing from some supported compilers.)
struct SourceLocation {
  const char* file;
  int line;
  static constexpr SourceLocation current(const char* f = __builtin_FILE(),
                                          int l = __builtin_LINE()) noexcept {
    return {f, l};
  }
};

// "invalid_argument", "timeout", ...
const char* to_string(ErrorCode code) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message,
        SourceLocation where = SourceLocation::current());

  ErrorCode code() const noexcept { return code_; }
  // Where in the library the error was raised ("forward.cpp:42").
  const std::string& where() const noexcept { return where_; }

 private:
  ErrorCode code_;
  std::string where_;
};

}  // namespace catamount
