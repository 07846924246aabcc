#include "catamount/error.h"

#include <string_view>

namespace catamount {

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::invalid_routing:
      return "invalid_routing";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::not_available:
      return "not_available";
    case ErrorCode::io:
      return "io";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, const std::string& message, SourceLocation where)
    : std::runtime_error(message), code_(code) {
  std::string_view file = where.file;
  if (const auto slash = file.rfind('/'); slash != std::string_view::npos) {
    file.remove_prefix(slash + 1);
  }
  where_ = std::string(file) + ":" + std::to_string(where.line);
}

}  // namespace catamount
