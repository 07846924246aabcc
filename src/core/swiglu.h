// The activation of one element and its derivative, FP32.
//
//   h = g' sigmoid(alpha g') (u' + up_offset)      g' = min(gate, limit), u' = clamp(up, -limit,
//   limit)
//
// Clamps are comparisons that let NaN through (fminf would replace it by the limit).
#pragma once

#include <math.h>  // ::expf, ::fabsf: for host and device

#include <cstdint>

#include "catamount/moe.h"
#include "core/dtype.h"
#include "core/macros.h"

namespace catamount {

struct SwigluGrad {
  float h;  // the same bits as swiglu()
  float d_gate;
  float d_up;
};

struct Sigmoid {
  float value;
  float complement;  // 1 - value, without cancellation
};

// The exponential is of a negative number: it cannot overflow.
CATAMOUNT_HD inline Sigmoid sigmoid(float z) {
  const float e = ::expf(-::fabsf(z));
  const float large = 1.0F / (1.0F + e);
  const float small = e * large;
  return z < 0.0F ? Sigmoid{small, large} : Sigmoid{large, small};
}

CATAMOUNT_HD inline bool clamps(float limit) { return limit < __builtin_huge_valf(); }
CATAMOUNT_HD inline float clamp_gate(float gate, const Swiglu& p) {
  return gate > p.limit ? p.limit : gate;
}
CATAMOUNT_HD inline float clamp_up(float up, const Swiglu& p) {
  const float below = up > p.limit ? p.limit : up;  // one after the other: selects, no branch
  return below < -p.limit ? -p.limit : below;
}

// Pre-activations are kept in BF16, on the same side of the clamp as the FP32 value: plain rounding
// would move values just beyond the limit onto it, where the gradient passes.
struct ClampEdge {
  float limit;
  float inside;   // the largest BF16 value that is not beyond the limit
  float outside;  // the smallest that is

  // limit > 0, infinity: no clamp.
  CATAMOUNT_HD explicit ClampEdge(float clamp_limit) : limit(clamp_limit) {
    const auto bits = __builtin_bit_cast(std::uint32_t, clamp_limit) >> 16;
    inside = to_float(Bf16{static_cast<std::uint16_t>(bits)});
    outside = to_float(Bf16{static_cast<std::uint16_t>(bits + 1)});
  }
  // What to round instead of `value`: `value` itself if nothing clamps. NaN stays.
  CATAMOUNT_HD float keep_side(float value) const {
    const float magnitude = ::fabsf(value);
    const float beyond = magnitude > limit ? ::fmaxf(magnitude, outside) : inside;
    return magnitude > inside ? ::copysignf(beyond, value) : value;
  }
};

// A pre-activation as backward will find it.
CATAMOUNT_HD inline Bf16 kept_pre_activation(float value, float limit) {
  return to_bf16(ClampEdge(limit).keep_side(value));
}

CATAMOUNT_HD inline float swiglu(float gate, float up, const Swiglu& p) {
  const float g = clamp_gate(gate, p);
  return g * sigmoid(p.alpha * g).value * (clamp_up(up, p) + p.up_offset);
}

// A clamp passes the gradient on its bounds and inside, and stops it outside, as torch's does.
CATAMOUNT_HD inline SwigluGrad swiglu_grad(float gate, float up, float d_h, const Swiglu& p) {
  const float g = clamp_gate(gate, p);
  const float u = clamp_up(up, p) + p.up_offset;
  const Sigmoid s = sigmoid(p.alpha * g);
  const float act = g * s.value;
  // d(g sigmoid(alpha g))/dg; the small factors first, so that a huge g meets the zero they make.
  const float d_act = s.value + g * (p.alpha * (s.value * s.complement));
  // Times 0 rather than replaced by 0: a NaN in d_h stays visible.
  const float gate_passes = gate > p.limit ? 0.0F : 1.0F;
  const float up_passes = up > p.limit || up < -p.limit ? 0.0F : 1.0F;
  return {act * u, d_h * gate_passes * u * d_act, d_h * up_passes * act};
}

}  // namespace catamount
