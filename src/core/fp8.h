// The two 8-bit formats of MXFP8 (OCP Microscaling Formats v1.0), one value at a time.
//
//   E4M3  s eeee mmm   bias 7; 2^-9 the smallest magnitude, 448 the largest; no Inf; NaN = s 1111
//   111 E8M0  eeee eeee    2^(code - 127), a scale: no sign, no zero; NaN = 0xFF
//
// Nothing here branches: loops over these functions vectorise.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/macros.h"

namespace catamount {

inline constexpr float kE4m3Max = 448.0F;
inline constexpr std::uint8_t kE4m3Nan = 0x7F;
inline constexpr std::uint8_t kE8m0Nan = 0xFF;
inline constexpr int kE8m0Bias = 127;

CATAMOUNT_HD constexpr float e4m3_to_float(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7FU;
  const std::uint32_t sign = std::uint32_t{code & 0x80U} << 24;
  // FP32 has 20 more mantissa bits and a bias that is 120 larger.
  const std::uint32_t normal = (magnitude << 20) + (120U << 23);
  const std::uint32_t subnormal =
      float_bits(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-9F);
  const std::uint32_t finite = select_bits(magnitude < 8, subnormal, normal);
  return float_from_bits(sign | select_bits(magnitude == kE4m3Nan, kFloatNanBits, finite));
}

// Round to nearest even. Magnitudes above 448, Inf among them, become 448; NaN becomes 0x7F
// whatever its sign: `__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3)`, bit for bit.
CATAMOUNT_HD constexpr std::uint8_t float_to_e4m3(float value) {
  constexpr std::uint32_t kMaxBits = float_bits(kE4m3Max);
  constexpr std::uint32_t kMinNormalBits = float_bits(0x1p-6F);
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t magnitude = bits & kFloatAbsMask;
  const std::uint32_t clamped = magnitude < kMaxBits ? magnitude : kMaxBits;
  const std::uint32_t normal = ((clamped + 0x7'FFFF + ((clamped >> 20) & 1)) >> 20) - (120U << 3);
  // The last bit of an FP32 value in [2^14, 2^15) weighs 2^-9, as E4M3's subnormals do: the
  // addition rounds to them, to nearest even.
  const std::uint32_t subnormal =
      float_bits(float_from_bits(clamped) + 0x1p14F) - float_bits(0x1p14F);
  const std::uint32_t rounded = select_bits(clamped < kMinNormalBits, subnormal, normal);
  const std::uint32_t coded = rounded | ((bits >> 24) & 0x80);
  return static_cast<std::uint8_t>(select_bits(magnitude > kFloatInfBits, kE4m3Nan, coded));
}

// Exact: 2^-127 is a subnormal FP32 number.
CATAMOUNT_HD constexpr float e8m0_to_float(std::uint8_t code) {
  const std::uint32_t finite = select_bits(code == 0, 0x0040'0000U, std::uint32_t{code} << 23);
  return float_from_bits(select_bits(code == kE8m0Nan, kFloatNanBits, finite));
}

// The code of 2^exponent; exponents outside [-127, 127] take the nearest bound.
CATAMOUNT_HD constexpr std::uint8_t exponent_to_e8m0(int exponent) {
  const int code = exponent + kE8m0Bias;
  return static_cast<std::uint8_t>(code < 0 ? 0 : (code > 254 ? 254 : code));
}

}  // namespace catamount
