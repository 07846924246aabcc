// down_dgrad: one tile of dh = dy W_down, and in its epilogue swiglu_grad (d_gate, d_up, scaled by
// the router weight), the weighted h that down_wgrad needs, and router_grad: the tile's part of d
// weight = dot(h, dh) + dot(bias_down, dy). So y is never kept.
#include "core/swiglu.h"
#include "cpu/stages.h"

namespace catamount::cpu {
namespace {

float* router_grad_parts(const RankPass& pass, std::int64_t pool_row) {
  return pass.at<float>(pass.layout.weight_grads) +
         pool_row * pass.schedule.config.n_tiles(Stage::down_dgrad, false);
}

float dot_with_bias(const RankPass& pass, const WeightMatrix& bias, std::int64_t expert,
                    const std::byte* dy_row, Scratch& scratch) {
  const std::int64_t hidden = pass.config.hidden;
  scratch.resize(static_cast<std::size_t>(hidden));
  pass.hidden_format().load(dy_row, 0, hidden, scratch.data());
  float sum = 0.0F;
  for (std::int64_t j = 0; j < hidden; ++j) {
    sum += scratch[static_cast<std::size_t>(j)] * bias.bias(expert, j);
  }
  return sum;
}

}  // namespace

float router_grad(const RankPass& pass, std::int64_t pool_row) {
  const float* parts = router_grad_parts(pass, pool_row);
  float sum = 0.0F;
  for (std::int32_t n = 0; n < pass.schedule.config.n_tiles(Stage::down_dgrad, false); ++n) {
    sum += parts[n];
  }
  return sum;
}

void down_dgrad(RankPass& pass, const Task& task, Worker& worker) {
  const bool shared = task.shared;
  const std::int64_t hidden = pass.config.hidden;
  const RowFormat format = pass.inter_format(shared);
  const std::int64_t rows = pass.rows_in_block(shared, task.expert, task.block);
  const std::int64_t row0 = pass.pool_row(shared, task.block);
  const ColumnSpan cols = columns(Stage::down_dgrad, task.n, format.cols);
  const ExpertMatrices& w = pass.weights.of(shared);
  const std::int64_t e = WeightSet::index(shared, task.expert);

  worker.b.resize(static_cast<std::size_t>(rows * cols.size));
  const RowPool dy = pass.dy_pool(shared);
  gemm(GemmForm::dgrad, {rows, cols.size, hidden}, dy.operand(row0, rows, 0, hidden, worker.a),
       w.down_dgrad.operand(e, 0, cols.begin), {worker.b.data(), cols.size});

  const RowPool pre = pass.pre_activations(shared, task.block);
  // d_gate and d_up are two rows of I each, so that no scale covers columns of both.
  const RowPool d_gate_up{pass.at(shared ? pass.layout.shared_d_gate_up : pass.layout.d_gate_up),
                          format, 2 * format.stride_bytes()};
  const RowPool h_weighted =
      pass.pool(shared ? pass.layout.shared_h_again : pass.layout.h_weighted, format);
  worker.c.resize(static_cast<std::size_t>(4 * cols.size));
  float* gate = worker.c.data();
  float* up = gate + cols.size;
  float* h = up + cols.size;
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* dh = worker.b.data() + i * cols.size;
    pre.format.load(pre.row(row0 + i), cols.begin, cols.begin + cols.size, gate);
    pre.format.load(pre.row(row0 + i), format.cols + cols.begin,
                    format.cols + cols.begin + cols.size, up);
    const float weight = pass.row_weight(shared, task.block, i);
    float dot = 0.0F;
    for (std::int64_t j = 0; j < cols.size; ++j) {
      const SwigluGrad grad = swiglu_grad(gate[j], up[j], weight * dh[j], pass.config.swiglu);
      dot += grad.h * dh[j];
      gate[j] = grad.d_gate;
      up[j] = grad.d_up;
      h[j] = weight * grad.h;
    }
    std::byte* row = d_gate_up.row(row0 + i);
    format.store_span(row, cols.begin, cols.size, gate);
    format.store_span(row + format.stride_bytes(), cols.begin, cols.size, up);
    format.store_span(h_weighted.row(row0 + i), cols.begin, cols.size, h);
    if (shared) continue;
    if (task.n == 0 && w.bias_down.present()) {
      dot += dot_with_bias(pass, w.bias_down, e, dy.row(row0 + i), worker.d);
    }
    router_grad_parts(pass, row0 + i)[task.n] = dot;
  }
}

}  // namespace catamount::cpu
