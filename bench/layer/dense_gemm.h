// The yardstick: cuBLASLt's dense BF16 GEMMs of the layer's size, and nothing else.
#pragma once

#include <cublasLt.h>

#include <cstdint>

#include "cuda/device/check_cuda.h"

namespace catamount::bench {

inline void check_cublas(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail(ErrorCode::internal, "cuBLASLt: {}", cublasLtGetStatusString(status));
  }
}

// out [rows, cols] = a [rows, depth] b [cols, depth]^T, all row-major BF16, FP32 sums.
class DenseGemm {
 public:
  DenseGemm(cublasLtHandle_t handle, std::int64_t rows, std::int64_t cols, std::int64_t depth)
      : handle_(handle) {
    // cuBLAS is column-major: it computes out^T = b a^T.
    check_cublas(cublasLtMatmulDescCreate(&matmul_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transpose = CUBLAS_OP_T;
    check_cublas(cublasLtMatmulDescSetAttribute(matmul_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                                sizeof(transpose)));
    const auto size = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
    check_cublas(cublasLtMatrixLayoutCreate(&b_, CUDA_R_16BF, size(depth), size(cols), depth));
    check_cublas(cublasLtMatrixLayoutCreate(&a_, CUDA_R_16BF, size(depth), size(rows), depth));
    check_cublas(cublasLtMatrixLayoutCreate(&out_, CUDA_R_16BF, size(cols), size(rows), cols));
    cublasLtMatmulPreference_t preference = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&preference));
    check_cublas(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof(kWorkspace)));
    int found = 0;
    check_cublas(cublasLtMatmulAlgoGetHeuristic(handle_, matmul_, b_, a_, out_, out_, preference, 1,
                                                &algorithm_, &found));
    cublasLtMatmulPreferenceDestroy(preference);
    check(found > 0, "cuBLASLt knows no algorithm for {} x {} x {}", rows, cols, depth);
    workspace_ = cuda::allocate_device<void>(kWorkspace, "cuBLASLt's workspace");
  }
  ~DenseGemm() {
    cublasLtMatrixLayoutDestroy(a_);
    cublasLtMatrixLayoutDestroy(b_);
    cublasLtMatrixLayoutDestroy(out_);
    cublasLtMatmulDescDestroy(matmul_);
  }
  DenseGemm(const DenseGemm&) = delete;
  DenseGemm& operator=(const DenseGemm&) = delete;

  void run(const void* a, const void* b, void* out, cudaStream_t stream) const {
    const float one = 1;
    const float zero = 0;
    check_cublas(cublasLtMatmul(handle_, matmul_, &one, b, b_, a, a_, &zero, out, out_, out, out_,
                                &algorithm_.algo, workspace_.get(), kWorkspace, stream));
  }

 private:
  static constexpr std::size_t kWorkspace = std::size_t{64} << 20;

  cublasLtHandle_t handle_;
  cublasLtMatmulDesc_t matmul_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, out_ = nullptr;
  cublasLtMatmulHeuristicResult_t algorithm_{};
  cuda::DevicePointer<void> workspace_;
};

}  // namespace catamount::bench
