#include "cpu/weights.h"

#include "core/dtype.h"
#include "core/mxfp8.h"

namespace catamount::cpu {
namespace {

// `rows` of gate (up: `skip` rows later) in a separate or fused tensor.
WeightMatrix view(const ConstTensorView& separate, const ConstTensorView& fused, std::int64_t rows,
                  std::int64_t cols, bool second_half) {
  WeightMatrix m;
  m.cols = cols;
  if (fused.present()) {
    m.dtype = fused.dtype;
    m.expert_stride = 2 * rows * cols;
    m.data = fused.data;
    if (second_half) m.data = m.address(0, rows, 0);
  } else if (separate.present()) {
    m.dtype = separate.dtype;
    m.expert_stride = rows * cols;
    m.data = separate.data;
  }
  return m;
}

GradMatrix view(const GradView& separate, const GradView& fused, std::int64_t rows,
                std::int64_t cols, bool second_half) {
  const WeightMatrix w = view(separate.tensor, fused.tensor, rows, cols, second_half);
  const GradView& source = fused.present() ? fused : separate;
  // The view was made from a writable tensor.
  return {const_cast<void*>(w.data), w.dtype, w.cols, w.expert_stride, source.accumulate};
}

// Quantizes and dequantizes every expert's matrix; `out` points into `storage`.
WeightMatrix requantize(const WeightMatrix& in, const MoeConfig& config, Contraction contraction,
                        std::int64_t experts, std::int64_t rows,
                        std::vector<std::vector<float>>& storage) {
  const std::int64_t size = rows * in.cols;
  std::vector<float> values(static_cast<std::size_t>(experts * size));
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(size));
  const ScaleGrid grid = weight_scales(config.precision, contraction);
  std::vector<float> scales(static_cast<std::size_t>(grid.bytes(rows, in.cols) / 4 + 1));
  for (std::int64_t e = 0; e < experts; ++e) {
    float* expert = values.data() + e * size;
    to_float(static_cast<const Bf16*>(in.address(e, 0, 0)), size, expert);
    quantize_weight(config.precision, contraction, expert, rows, in.cols, codes.data(),
                    scales.data());
    dequantize_weight(config.precision, contraction, codes.data(), scales.data(), rows, in.cols,
                      expert);
  }
  storage.push_back(std::move(values));
  return {storage.back().data(), DType::f32, in.cols, size};
}

void quantize(ExpertMatrices& m, const MoeConfig& config, std::int64_t experts, std::int64_t width,
              bool with_dgrad, std::vector<std::vector<float>>& storage) {
  const auto both = [&](WeightMatrix& fprop, WeightMatrix& dgrad, std::int64_t rows) {
    const WeightMatrix source = fprop;
    fprop = requantize(source, config, Contraction::cols, experts, rows, storage);
    if (with_dgrad) {
      dgrad = requantize(source, config, Contraction::rows, experts, rows, storage);
    }
  };
  both(m.gate, m.gate_dgrad, width);
  both(m.up, m.up_dgrad, width);
  both(m.down, m.down_dgrad, config.hidden);
}

}  // namespace

float WeightMatrix::bias(std::int64_t expert, std::int64_t col) const {
  const void* p = address(expert, 0, col);
  return dtype == DType::bf16 ? to_float(*static_cast<const Bf16*>(p))
                              : *static_cast<const float*>(p);
}

WeightSet make_weight_set(const MoeConfig& config, const ExpertWeights& w, bool with_dgrad) {
  const std::int64_t h = config.hidden;
  const std::int64_t i = config.intermediate;
  const std::int64_t s = config.shared_intermediate;
  WeightSet set;
  ExpertMatrices& r = set.routed;
  r.gate = view(w.gate, w.gate_up, i, h, false);
  r.up = view(w.up, w.gate_up, i, h, true);
  r.down = view(w.down, {}, h, i, false);
  r.bias_gate = view(w.bias_gate, w.bias_gate_up, 1, i, false);
  r.bias_up = view(w.bias_up, w.bias_gate_up, 1, i, true);
  r.bias_down = view(w.bias_down, {}, 1, h, false);
  ExpertMatrices& d = set.shared;
  d.gate = view(w.shared_gate, w.shared_gate_up, s, h, false);
  d.up = view(w.shared_up, w.shared_gate_up, s, h, true);
  d.down = view(w.shared_down, {}, h, s, false);
  for (ExpertMatrices* m : {&r, &d}) {
    m->gate_dgrad = m->gate;
    m->up_dgrad = m->up;
    m->down_dgrad = m->down;
  }
  if (config.precision != Precision::bf16) {
    quantize(r, config, config.num_local_experts(), i, with_dgrad, set.dequantized);
    if (s > 0) quantize(d, config, 1, s, with_dgrad, set.dequantized);
  }
  return set;
}

GradSet make_grad_set(const MoeConfig& config, const ExpertGrads& g) {
  const std::int64_t h = config.hidden;
  const std::int64_t i = config.intermediate;
  const std::int64_t s = config.shared_intermediate;
  const GradView none;
  return {{view(g.gate, g.gate_up, i, h, false), view(g.up, g.gate_up, i, h, true),
           view(g.down, none, h, i, false), view(g.bias_gate, g.bias_gate_up, 1, i, false),
           view(g.bias_up, g.bias_gate_up, 1, i, true), view(g.bias_down, none, 1, h, false)},
          {view(g.shared_gate, g.shared_gate_up, s, h, false),
           view(g.shared_up, g.shared_gate_up, s, h, true),
           view(g.shared_down, none, h, s, false),
           {},
           {},
           {}}};
}

void GradMatrix::write(std::int64_t expert, std::int64_t row, std::int64_t col, std::int64_t n,
                       const float* values) const {
  const std::int64_t first = expert * expert_stride + row * cols + col;
  for (std::int64_t j = 0; j < n; ++j) {
    if (dtype == DType::bf16) {
      Bf16& element = static_cast<Bf16*>(data)[first + j];
      element = to_bf16(values[j] + (accumulate ? to_float(element) : 0.0F));
    } else {
      float& element = static_cast<float*>(data)[first + j];
      element = values[j] + (accumulate ? element : 0.0F);
    }
  }
}

}  // namespace catamount::cpu
