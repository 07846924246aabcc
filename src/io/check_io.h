// `check_io(ok, "expected {}, got {}", ...)`: core/check.h for what comes out of files.
#pragma once

#include <type_traits>
#include <utility>

#include "core/check.h"

namespace catamount::io {

template <class... Args>
void check_io(bool ok, CheckFormat<std::type_identity_t<Args>...> format, Args&&... args) {
  if (!ok) fail(ErrorCode::io, format, std::forward<Args>(args)...);
}

}  // namespace catamount::io
