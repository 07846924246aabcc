#!/usr/bin/env python3
"""Writes src/cuda/ptx/wgmma_instructions.cuh: wgmma's register lists are too long to write by hand.

Usage: scripts/generate_wgmma.py > src/cuda/ptx/wgmma_instructions.cuh
"""

WIDTHS = [32, 64, 128, 192]


def function(n):
    count = n // 2
    rows = []
    for begin in range(0, count, 16):
        row = ", ".join(f"%{i}" for i in range(begin, min(begin + 16, count)))
        rows.append(f'      "{row}{"," if begin + 16 < count else ""} "')
    outputs = []
    for begin in range(0, count, 8):
        row = ", ".join(f'"+f"(d[kFirst + {i}])' for i in range(begin, min(begin + 8, count)))
        outputs.append(f"        {row}")
    registers = "\n".join(rows)
    operands = ",\n".join(outputs)
    return f"""
// d += A B^T (scale_d == 0: d = A B^T): A [64, 16], B [{n}, 16], both K-major in shared memory. The
// sums are the {count} from kFirst on.
template <int kFirst, int kSize>
__device__ inline void wgmma_m64n{n}k16(float (&d)[kSize], std::uint64_t a, std::uint64_t b,
                                        std::uint32_t scale_d) {{
  static_assert(kFirst + {count} <= kSize);
  asm volatile(
      "{{\\n"
      ".reg .pred p;\\n"
      "setp.ne.b32 p, %{count + 2}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{"
{registers}
      "}}, %{count}, %{count + 1}, p, 1, 1, 0, 0;\\n"
      "}}\\n"
      : {operands.lstrip()}
      : "l"(a), "l"(b), "r"(scale_d));
}}"""


print("""// Made by scripts/generate_wgmma.py. BF16 operands, FP32 sums.
#pragma once

#include <cstdint>

namespace catamount::cuda::ptx {
// clang-format off""")
for width in WIDTHS:
    print(function(width))
print("""
// clang-format on
}  // namespace catamount::cuda::ptx""")
