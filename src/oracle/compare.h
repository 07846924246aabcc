// How far a result is from the oracle's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace catamount::oracle {

struct Comparison {
  double relative_error = 0;  // norm(result - reference) / norm(reference), over finite references;
                              // 0 / 0 is 0, anything / 0 is infinite
  double max_abs_error = 0;
  std::int64_t nonfinite_mismatches = 0;  // NaN or Inf on one side alone; values there are too few
                                          // or too many of
  std::int64_t missing = 0;  // exact zeros where the reference is not small: a tile nobody wrote,
                             // however small a part of the whole

  bool within(double bound) const {
    return relative_error <= bound && nonfinite_mismatches == 0 && missing == 0;
  }
};

template <class Result>
Comparison compare(std::span<const Result> result, std::span<const double> reference) {
  Comparison c;
  double error = 0;
  double norm = 0;
  for (const double r : reference) {
    if (std::isfinite(r)) norm += r * r;
  }
  const double rms =
      reference.empty() ? 0 : std::sqrt(norm / static_cast<double>(reference.size()));
  const std::size_t n = std::min(result.size(), reference.size());
  c.nonfinite_mismatches = static_cast<std::int64_t>(std::max(result.size(), reference.size()) - n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto value = static_cast<double>(result[i]);
    if (std::isfinite(value) != std::isfinite(reference[i])) {
      ++c.nonfinite_mismatches;
      continue;
    }
    if (!std::isfinite(value)) continue;
    const double d = std::fabs(value - reference[i]);
    error += d * d;
    c.max_abs_error = std::fmax(c.max_abs_error, d);
    if (value == 0 && std::fabs(reference[i]) > rms) ++c.missing;
  }
  if (c.max_abs_error > 0) {
    c.relative_error = norm > 0 ? std::sqrt(error / norm) : std::numeric_limits<double>::infinity();
  }
  return c;
}

}  // namespace catamount::oracle
