// GEMM of the CPU backend: C = A B or C += A B on row-major tiles, BF16 or FP32 operands, FP32
// products and sums.
//
// One call runs on the thread that makes it; any number of threads may call at once. The same call
// on the same machine gives the same bits, whatever the thread, the other threads and the
// addresses. Sums over K are formed in blocks of kGemmBlockK, in order, so a BF16 operand gives the
// bits of the same values in FP32. Problems that are cut differently in M or N may differ in the
// last bits. NaN and Inf reach the elements whose sum contains them (0 * NaN is NaN) and no others.
#pragma once

#include <cstdint>

#include "catamount/tensor.h"

namespace catamount::cpu {

inline constexpr std::int64_t kGemmBlockK = 256;

struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
};

// How A and B lie in memory. The names are those of a weight stored [out, in].
enum class GemmForm {
  fprop,  // C[M, N] = A[M, K] B[N, K]^T
  dgrad,  // C[M, N] = A[M, K] B[K, N]
  wgrad,  // C[M, N] = A[K, M]^T B[K, N]
};

struct GemmOperand {
  const void* data = nullptr;
  DType dtype = DType::bf16;  // bf16 or f32
  std::int64_t ld = 0;        // elements from one stored row to the next
};

struct GemmResult {
  float* data = nullptr;
  std::int64_t ld = 0;
  bool accumulate = false;  // false: C is overwritten, and never read
};

void gemm(GemmForm form, const GemmShape& shape, const GemmOperand& a, const GemmOperand& b,
          const GemmResult& c);

}  // namespace catamount::cpu
