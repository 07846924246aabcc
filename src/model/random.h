// Random numbers that are the same on every machine: a counter and a mixing function (splitmix64).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "core/dtype.h"

namespace catamount::model {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(uniform() * static_cast<double>(n));
  }
  // Standard normal (Box and Muller).
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }
  std::vector<Bf16> normal_bf16(std::int64_t n, double stddev) {
    std::vector<Bf16> values(static_cast<std::size_t>(n));
    for (Bf16& v : values) v = to_bf16(static_cast<float>(stddev * normal()));
    return values;
  }

 private:
  std::uint64_t state_;
};

}  // namespace catamount::model
