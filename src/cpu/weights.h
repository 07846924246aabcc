// The weights and gradients of one rank, however the caller laid them out.
#pragma once

#include <cstdint>
#include <vector>

#include "catamount/moe.h"
#include "cpu/gemm.h"

namespace catamount::cpu {

// One matrix per expert, [rows, cols] row-major.
struct WeightMatrix {
  const void* data = nullptr;  // nullptr: absent
  DType dtype = DType::bf16;
  std::int64_t cols = 0;
  std::int64_t expert_stride = 0;  // elements

  bool present() const { return data != nullptr; }
  const void* address(std::int64_t expert, std::int64_t row, std::int64_t col) const {
    const std::int64_t element = expert * expert_stride + row * cols + col;
    return static_cast<const std::byte*>(data) +
           element * static_cast<std::int64_t>(dtype_bytes(dtype));
  }
  GemmOperand operand(std::int64_t expert, std::int64_t row, std::int64_t col) const {
    return {address(expert, row, col), dtype, cols};
  }
  // Element of a [E, cols] bias.
  float bias(std::int64_t expert, std::int64_t col) const;
};

// The matrices of one kind of expert. In the FP8 precisions `*_dgrad` is quantized along the other
// axis; in BF16 it is the same matrix.
struct ExpertMatrices {
  WeightMatrix gate, up, down;
  WeightMatrix gate_dgrad, up_dgrad, down_dgrad;
  WeightMatrix bias_gate, bias_up, bias_down;
};

struct WeightSet {
  ExpertMatrices routed, shared;
  std::vector<std::vector<float>> dequantized;  // what the FP8 precisions' matrices point into

  const ExpertMatrices& of(bool is_shared) const { return is_shared ? shared : routed; }
  // The shared expert's tensors have no expert axis.
  static std::int64_t index(bool is_shared, std::int32_t expert) { return is_shared ? 0 : expert; }
};

// Views of the caller's weights, or, for the FP8 precisions, of their quantized values.
// `with_dgrad`: backward's orientation is wanted too.
WeightSet make_weight_set(const MoeConfig& config, const ExpertWeights& weights, bool with_dgrad);

struct GradMatrix {
  void* data = nullptr;  // nullptr: not wanted
  DType dtype = DType::f32;
  std::int64_t cols = 0;
  std::int64_t expert_stride = 0;
  bool accumulate = false;

  bool wanted() const { return data != nullptr; }
  // Overwrites or adds `n` values at [expert, row, col ..].
  void write(std::int64_t expert, std::int64_t row, std::int64_t col, std::int64_t n,
             const float* values) const;
};

struct ExpertGradMatrices {
  GradMatrix gate, up, down, bias_gate, bias_up, bias_down;
};

struct GradSet {
  ExpertGradMatrices routed, shared;
  const ExpertGradMatrices& of(bool is_shared) const { return is_shared ? shared : routed; }
};

GradSet make_grad_set(const MoeConfig& config, const ExpertGrads& grads);

}  // namespace catamount::cpu
