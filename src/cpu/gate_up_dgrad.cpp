// gate_up_dgrad: one tile of dx = d_gate W_gate + d_up W_up, rounded to BF16 rows.
#include "cpu/stages.h"

namespace catamount::cpu {

void gate_up_dgrad(RankPass& pass, const Task& task, Worker& worker) {
  const bool shared = task.shared;
  const std::int64_t hidden = pass.config.hidden;
  const RowFormat format = pass.inter_format(shared);
  const std::int64_t rows = pass.rows_in_block(shared, task.expert, task.block);
  const std::int64_t row0 = pass.pool_row(shared, task.block);
  const ColumnSpan cols = columns(Stage::gate_up_dgrad, task.n, hidden);
  const ExpertMatrices& w = pass.weights.of(shared);
  const std::int64_t e = WeightSet::index(shared, task.expert);

  RowPool d_rows{pass.at(shared ? pass.layout.shared_d_gate_up : pass.layout.d_gate_up), format,
                 2 * format.stride_bytes()};
  worker.b.resize(static_cast<std::size_t>(rows * cols.size));
  const GemmShape shape{rows, cols.size, format.cols};
  gemm(GemmForm::dgrad, shape, d_rows.operand(row0, rows, 0, format.cols, worker.a),
       w.gate_dgrad.operand(e, 0, cols.begin), {worker.b.data(), cols.size});
  d_rows.data += format.stride_bytes();
  gemm(GemmForm::dgrad, shape, d_rows.operand(row0, rows, 0, format.cols, worker.a),
       w.up_dgrad.operand(e, 0, cols.begin), {worker.b.data(), cols.size, true});

  const RowPool dx =
      pass.pool(shared ? pass.layout.shared_dx : pass.layout.dx, RankPass::bf16_row(hidden));
  for (std::int64_t i = 0; i < rows; ++i) {
    dx.format.store_span(dx.row(row0 + i), cols.begin, cols.size, worker.b.data() + i * cols.size);
  }
}

}  // namespace catamount::cpu
