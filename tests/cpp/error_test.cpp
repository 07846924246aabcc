// Error carries its code, message and place; check() and fail() build it.
#include "catamount/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/check.h"

namespace catamount {
namespace {

constexpr ErrorCode kCodes[] = {ErrorCode::invalid_argument,
                                ErrorCode::invalid_routing,
                                ErrorCode::timeout,
                                ErrorCode::not_available,
                                ErrorCode::io,
                                ErrorCode::internal};

// The Error that `call` raises; a failure of the test when it raises none.
template <class Call>
Error raised_by(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "expected an Error, nothing was raised";
  return Error(ErrorCode::internal, "nothing was raised");
}

TEST(ErrorCode, NamesAreDistinct) {
  std::set<std::string> names;
  for (const ErrorCode code : kCodes) names.insert(to_string(code));
  EXPECT_EQ(names.size(), std::size(kCodes));
  EXPECT_EQ(names.count("unknown"), 0U);
}

TEST(ErrorCode, NameIsTheEnumerators) {
  EXPECT_STREQ(to_string(ErrorCode::invalid_argument), "invalid_argument");
  EXPECT_STREQ(to_string(ErrorCode::timeout), "timeout");
  EXPECT_STREQ(to_string(static_cast<ErrorCode>(99)), "unknown");
}

TEST(Error, KeepsCodeAndMessage) {
  for (const ErrorCode code : kCodes) {
    const Error error(code, "expected 3, got 4");
    EXPECT_EQ(error.code(), code);
    EXPECT_STREQ(error.what(), "expected 3, got 4");
  }
}

TEST(Error, NamesFileAndLineWithoutFolders) {
  EXPECT_EQ(Error(ErrorCode::io, "", {"/a/b/c.cpp", 7}).where(), "c.cpp:7");
  EXPECT_EQ(Error(ErrorCode::io, "", {"c.cpp", 12}).where(), "c.cpp:12");
}

TEST(Check, IsSilentWhenTheConditionHolds) { EXPECT_NO_THROW(check(true, "never {}", 1)); }

TEST(Check, RaisesInvalidArgumentWithTheFormattedMessage) {
  const int line = __LINE__ + 1;
  const Error error = raised_by([] { check(false, "topk must be at most {}, got {}", 8, 9); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_STREQ(error.what(), "topk must be at most 8, got 9");
  EXPECT_EQ(error.where(), "error_test.cpp:" + std::to_string(line));
}

TEST(Fail, RaisesTheGivenCode) {
  const int line = __LINE__ + 1;
  const Error error = raised_by([] { fail(ErrorCode::io, "no such file: {}", "x.json"); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_STREQ(error.what(), "no such file: x.json");
  EXPECT_EQ(error.where(), "error_test.cpp:" + std::to_string(line));
}

}  // namespace
}  // namespace catamount
