// E4M3 and MXFP8 scales written straight from the formats' definitions, in double: what the codec's
// tests compare with.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#if __has_include(<cuda_fp8.h>)  // NVIDIA's own conversions, on the host
#include <cuda_fp8.h>
#define HAVE_CUDA_FP8 1
#else
#define HAVE_CUDA_FP8 0
#endif

namespace catamount::test {

inline double e4m3_value(int code) {
  const double sign = (code & 0x80) != 0 ? -1.0 : 1.0;
  const int exponent = (code >> 3) & 0xF;
  const int mantissa = code & 0x7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - 7 - 3);
  return sign * std::ldexp(8 + mantissa, exponent - 7 - 3);
}

// The nearest of all codes; of two as near, the even one; above the largest, the largest.
inline std::uint8_t nearest_e4m3(double value) {
  static const std::array<double, 0x7F> values = [] {
    std::array<double, 0x7F> table{};
    for (std::size_t code = 0; code < table.size(); ++code) {
      table[code] = e4m3_value(static_cast<int>(code));
    }
    return table;
  }();
  if (std::isnan(value)) return 0x7F;
  const double magnitude = std::fabs(value);
  std::size_t best = 0;
  for (std::size_t code = 1; code < values.size(); ++code) {
    const double distance = std::fabs(values[code] - magnitude);
    const double best_distance = std::fabs(values[best] - magnitude);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = code;
  }
  if (std::isinf(value)) best = 0x7E;
  return static_cast<std::uint8_t>(best | (std::signbit(value) ? 0x80U : 0U));
}

// The exponent of the smallest power of two >= amax / 448, in the range that a quantizer may use.
inline int ceil_scale_exponent(double amax) {
  int exponent = -127;
  while (exponent < 119 && std::ldexp(448.0, exponent) < amax) ++exponent;
  return exponent;
}

inline int floor_scale_exponent(double amax) {
  if (amax == 0.0) return -127;
  return std::max(std::ilogb(amax) - 8, -127);
}

}  // namespace catamount::test
