// gate_up: one tile of x [W_gate; W_up]^T with biases; swiglu in its epilogue. In backward
// (recompute) only the pre-activations are wanted.
#include "core/swiglu.h"
#include "cpu/stages.h"

namespace catamount::cpu {

void gate_up(RankPass& pass, const Task& task, Worker& worker) {
  const bool shared = task.shared;
  const std::int64_t hidden = pass.config.hidden;
  const std::int64_t width = pass.inter_format(shared).cols;
  const std::int64_t rows = pass.rows_in_block(shared, task.expert, task.block);
  const std::int64_t row0 = pass.pool_row(shared, task.block);
  const ColumnSpan cols = columns(Stage::gate_up, task.n, width);
  const ExpertMatrices& w = pass.weights.of(shared);
  const std::int64_t e = WeightSet::index(shared, task.expert);

  worker.b.resize(static_cast<std::size_t>(rows * cols.size));
  worker.c.resize(static_cast<std::size_t>(rows * cols.size));
  const GemmOperand x = pass.x_pool(shared, task.block)
                            .operand(pass.x_row(shared, task.block), rows, 0, hidden, worker.a);
  const GemmShape shape{rows, cols.size, hidden};
  gemm(GemmForm::fprop, shape, x, w.gate.operand(e, cols.begin, 0), {worker.b.data(), cols.size});
  gemm(GemmForm::fprop, shape, x, w.up.operand(e, cols.begin, 0), {worker.c.data(), cols.size});

  const RowPool kept = pass.pre_activations(shared, task.block);
  const RowPool h =
      pass.pool(shared ? pass.layout.shared_h : pass.layout.h, pass.inter_format(shared));
  const bool scale_h = !shared && pass.config.router_weight == RouterWeight::before_down;
  for (std::int64_t i = 0; i < rows; ++i) {
    float* gate = worker.b.data() + i * cols.size;
    float* up = worker.c.data() + i * cols.size;
    if (w.bias_gate.present()) {
      for (std::int64_t j = 0; j < cols.size; ++j) {
        gate[j] += w.bias_gate.bias(e, cols.begin + j);
        up[j] += w.bias_up.bias(e, cols.begin + j);
      }
    }
    if (kept.data != nullptr) {
      auto* kept_gate = reinterpret_cast<Bf16*>(kept.row(row0 + i)) + cols.begin;
      for (std::int64_t j = 0; j < cols.size; ++j) {
        kept_gate[j] = kept_pre_activation(gate[j], pass.config.swiglu.limit);
        kept_gate[width + j] = kept_pre_activation(up[j], pass.config.swiglu.limit);
      }
    }
    if (pass.schedule.config.backward) continue;
    const float weight = scale_h ? pass.row_weight(shared, task.block, i) : 1.0F;
    for (std::int64_t j = 0; j < cols.size; ++j) {
      gate[j] = weight * swiglu(gate[j], up[j], pass.config.swiglu);
    }
    h.format.store_span(h.row(row0 + i), cols.begin, cols.size, gate);
  }
}

}  // namespace catamount::cpu
