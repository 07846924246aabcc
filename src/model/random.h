// Random numbers that are the same on every machine: a counter and a mixing function (splitmix64).
#pragma once

#include <cstdint>
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
  // In [0, n).
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(uniform() * static_cast<double>(n));
  }
  // Normal, mean 0, standard deviation 1, within +-6: the sum of twelve uniform 16-bit numbers.
  // Integers alone, so that no machine's logarithm or cosine shows in the values.
  double normal() {
    std::int64_t sum = 0;
    for (int word = 0; word < 3; ++word) {
      const std::uint64_t four = bits();
      for (int shift = 0; shift < 64; shift += 16) sum += (four >> shift) & 0xffff;
    }
    return (static_cast<double>(sum) - 12 * 32767.5) * 0x1p-16;
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
