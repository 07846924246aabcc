// The GEMM itself is oneDNN's dnnl_sgemm (docs/cpu_gemm.md has the measurements behind the choice).
// Added here: BF16 panels become FP32 in a scratch of the calling thread that fits the L2 cache,
// and the library is held to that one thread.
#include "cpu/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "core/check.h"

// The two calls needed of OpenMP, declared here: <omp.h> is not installed with every compiler, the
// runtime comes with oneDNN.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int);
}

static_assert(DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP,
              "expected a oneDNN that takes its threads from OpenMP, as Debian's does");

namespace catamount::cpu {
namespace {

constexpr std::int64_t kBlockM = 256;
constexpr std::int64_t kBlockN = 256;

struct Scratch {
  alignas(64) float a[kBlockM * kGemmBlockK];
  alignas(64) float b[kBlockN * kGemmBlockK];
};

Scratch& thread_scratch() {
  thread_local const auto scratch = std::make_unique_for_overwrite<Scratch>();
  return *scratch;  // NOLINT(clang-analyzer-cplusplus.NewDelete): takes thread_local for a local
}

// oneDNN asks OpenMP how many threads to start. OpenMP keeps that number per calling thread, so it
// is lowered for the length of a call without anybody else seeing it.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

struct Panel {
  const float* data;
  std::int64_t ld;
};

void widen(const std::uint16_t* __restrict bf16, std::int64_t size, float* __restrict out) {
  const auto to_float = [](std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  };
  constexpr std::int64_t kStep = 16;  // a fixed count is what GCC vectorizes at -O2
  std::int64_t i = 0;
  for (; i + kStep <= size; i += kStep) {
    for (std::int64_t j = i; j < i + kStep; ++j) out[j] = to_float(bf16[j]);
  }
  for (; i < size; ++i) out[i] = to_float(bf16[i]);
}

// Rows [row, row + rows), columns [col, col + cols) of an operand in FP32: in place, or widened
// into `scratch`.
Panel panel(const GemmOperand& x, std::int64_t row, std::int64_t col, std::int64_t rows,
            std::int64_t cols, float* scratch) {
  const std::int64_t start = row * x.ld + col;
  if (x.dtype == DType::f32) return {static_cast<const float*>(x.data) + start, x.ld};
  const auto* from = static_cast<const std::uint16_t*>(x.data) + start;
  for (std::int64_t r = 0; r < rows; ++r) widen(from + r * x.ld, cols, scratch + r * cols);
  return {scratch, cols};
}

void check_operand(const char* name, const GemmOperand& x, std::int64_t rows, std::int64_t cols) {
  check(x.dtype == DType::bf16 || x.dtype == DType::f32,
        "GEMM operand {} must be bf16 or f32, got {}", name, to_string(x.dtype));
  check(x.ld >= cols, "GEMM operand {} has rows of {} elements, got leading dimension {}", name,
        cols, x.ld);
  check(x.data != nullptr || rows == 0 || cols == 0,
        "GEMM operand {} is [{}, {}], got a null pointer", name, rows, cols);
}

}  // namespace

void gemm(GemmForm form, const GemmShape& shape, const GemmOperand& a, const GemmOperand& b,
          const GemmResult& c) {
  const auto [m, n, k] = shape;
  const bool a_transposed = form == GemmForm::wgrad, b_transposed = form == GemmForm::fprop;
  check(m >= 0 && n >= 0 && k >= 0, "GEMM sizes must not be negative, got {} x {} x {}", m, n, k);
  check_operand("A", a, a_transposed ? k : m, a_transposed ? m : k);
  check_operand("B", b, b_transposed ? n : k, b_transposed ? k : n);
  check_operand("C", {c.data, DType::f32, c.ld}, m, n);
  if (k == 0 && !c.accumulate) {
    for (std::int64_t i = 0; i < m; ++i) std::fill_n(c.data + i * c.ld, n, 0.0F);
  }
  if (m == 0 || n == 0 || k == 0) return;

  Scratch& scratch = thread_scratch();
  const OneThread one_thread;
  for (std::int64_t n0 = 0; n0 < n; n0 += kBlockN) {
    const std::int64_t nb = std::min(kBlockN, n - n0);
    for (std::int64_t k0 = 0; k0 < k; k0 += kGemmBlockK) {
      const std::int64_t kb = std::min(kGemmBlockK, k - k0);
      const Panel bp =
          b_transposed ? panel(b, n0, k0, nb, kb, scratch.b) : panel(b, k0, n0, kb, nb, scratch.b);
      const float beta = k0 > 0 || c.accumulate ? 1.0F : 0.0F;
      for (std::int64_t m0 = 0; m0 < m; m0 += kBlockM) {
        const std::int64_t mb = std::min(kBlockM, m - m0);
        const Panel ap = a_transposed ? panel(a, k0, m0, kb, mb, scratch.a)
                                      : panel(a, m0, k0, mb, kb, scratch.a);
        const dnnl_status_t status =
            dnnl_sgemm(a_transposed ? 'T' : 'N', b_transposed ? 'T' : 'N', mb, nb, kb, 1.0F,
                       ap.data, ap.ld, bp.data, bp.ld, beta, c.data + m0 * c.ld + n0, c.ld);
        if (status != dnnl_success) {
          fail(ErrorCode::internal, "dnnl_sgemm {} x {} x {}: expected success, got status {}", mb,
               nb, kb, static_cast<int>(status));
        }
      }
    }
  }
}

}  // namespace catamount::cpu
