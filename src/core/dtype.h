// BF16 as bits, and its conversions: round to nearest even; a NaN becomes the NaN 0x7FFF, which is
// what the GPU's own conversion gives, so host and device agree bit for bit.
#pragma once

#include <cstdint>

#include "core/macros.h"

namespace catamount {

struct Bf16 {
  std::uint16_t bits;
};

CATAMOUNT_HD constexpr std::uint32_t float_bits(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
CATAMOUNT_HD constexpr float float_from_bits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

// `condition ? a : b` without a branch: compilers make one around the arithmetic of a and b, and
// then don't vectorise the loop around it.
CATAMOUNT_HD constexpr std::uint32_t select_bits(bool condition, std::uint32_t a, std::uint32_t b) {
  return b ^ ((a ^ b) & (0U - static_cast<std::uint32_t>(condition)));
}

inline constexpr std::uint32_t kFloatAbsMask = 0x7FFF'FFFF;
inline constexpr std::uint32_t kFloatInfBits = 0x7F80'0000;  // magnitudes above are NaN
inline constexpr std::uint32_t kFloatNanBits = 0x7FC0'0000;

CATAMOUNT_HD constexpr float to_float(Bf16 value) {
  return float_from_bits(std::uint32_t{value.bits} << 16);
}

CATAMOUNT_HD constexpr Bf16 to_bf16(float value) {
  const std::uint32_t bits = float_bits(value);
  // Adding just under half (exactly half, where the kept part is odd) carries into it if due.
  const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & kFloatAbsMask) > kFloatInfBits;
  return {static_cast<std::uint16_t>(is_nan ? 0x7FFF : rounded)};
}

CATAMOUNT_HD constexpr float round_to_bf16(float value) { return to_float(to_bf16(value)); }

// Both loops have no branch and no aliasing, so that compilers vectorise them.
CATAMOUNT_HD constexpr void to_float(const Bf16* __restrict in, std::int64_t n,
                                     float* __restrict out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_float(in[i]);
}
CATAMOUNT_HD constexpr void to_bf16(const float* __restrict in, std::int64_t n,
                                    Bf16* __restrict out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_bf16(in[i]);
}

}  // namespace catamount
