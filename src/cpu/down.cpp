// down: one tile of h W_down^T + bias, rounded to BF16 rows of y.
#include "cpu/stages.h"

namespace catamount::cpu {

void down(RankPass& pass, const Task& task, Worker& worker) {
  const bool shared = task.shared;
  const RowFormat format = pass.inter_format(shared);
  const std::int64_t rows = pass.rows_in_block(shared, task.expert, task.block);
  const std::int64_t row0 = pass.pool_row(shared, task.block);
  const ColumnSpan cols = columns(Stage::down, task.n, pass.config.hidden);
  const ExpertMatrices& w = pass.weights.of(shared);
  const std::int64_t e = WeightSet::index(shared, task.expert);

  worker.b.resize(static_cast<std::size_t>(rows * cols.size));
  const RowPool h = pass.pool(shared ? pass.layout.shared_h : pass.layout.h, format);
  gemm(GemmForm::fprop, {rows, cols.size, format.cols},
       h.operand(row0, rows, 0, format.cols, worker.a), w.down.operand(e, cols.begin, 0),
       {worker.b.data(), cols.size});

  const RowPool y = pass.pool(shared ? pass.layout.shared_y : pass.layout.y,
                              RankPass::bf16_row(pass.config.hidden));
  const bool scale_bias = pass.config.router_weight == RouterWeight::before_down;
  for (std::int64_t i = 0; i < rows; ++i) {
    float* values = worker.b.data() + i * cols.size;
    if (w.bias_down.present()) {
      const float weight = scale_bias ? pass.row_weight(shared, task.block, i) : 1.0F;
      for (std::int64_t j = 0; j < cols.size; ++j) {
        values[j] += weight * w.bias_down.bias(e, cols.begin + j);
      }
    }
    y.format.store_span(y.row(row0 + i), cols.begin, cols.size, values);
  }
}

}  // namespace catamount::cpu
