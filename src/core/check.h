// Argument checks: `check(ok, "topk must be in [1, {}], got {}", limit, topk)`.
#pragma once

#include <fmt/core.h>

#include <type_traits>
#include <utility>

#include "catamount/error.h"

namespace catamount {

// A format string that remembers where it was written.
template <class... Args>
struct CheckFormat {
  fmt::format_string<Args...> text;
  SourceLocation where;

  template <class Text>
  FMT_CONSTEVAL CheckFormat(const Text& t,  // NOLINT(google-explicit-constructor)
                            SourceLocation w = SourceLocation::current())
      : text(t), where(w) {}
};

template <class... Args>
[[noreturn]] void fail(ErrorCode code, CheckFormat<std::type_identity_t<Args>...> format,
                       Args&&... args) {
  throw Error(code, fmt::format(format.text, std::forward<Args>(args)...), format.where);
}

template <class... Args>
void check(bool ok, CheckFormat<std::type_identity_t<Args>...> format, Args&&... args) {
  if (!ok) {
    throw Error(ErrorCode::invalid_argument, fmt::format(format.text, std::forward<Args>(args)...),
                format.where);
  }
}

}  // namespace catamount
