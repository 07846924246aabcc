// down_wgrad and gate_up_wgrad: one tile of a weight's gradient, summed over the rows of one piece
// (the rows of one expert in one macrobatch), with the biases' gradients beside the first column
// tile. An expert whose rows straddle macrobatches adds its pieces up in FP32 scratch, in order;
// the last piece writes to the caller's gradient.
#include "cpu/stages.h"

namespace catamount::cpu {
namespace {

std::int64_t rows_in_piece(const RankPass& pass, const Piece& piece, bool shared) {
  if (piece.num_blocks == 0) return 0;
  const std::int32_t last = piece.block + piece.num_blocks - 1;
  return static_cast<std::int64_t>(piece.num_blocks - 1) * kBlockRows +
         pass.rows_in_block(shared, piece.expert, last);
}

// One output matrix of a piece: where sums collect between pieces, and where they end.
struct Output {
  const GradMatrix& grad;
  std::int64_t expert;
  const Piece& piece;
  float* scratch;  // [rows, cols] of this matrix, where the piece has scratch

  float* scratch_at(std::int64_t row, std::int64_t col) const {
    return scratch + row * grad.cols + col;
  }
  bool starts() const { return piece.first; }

  // Loads the sum of the pieces before into `tile` [rows, cols].
  void load(std::int64_t row0, std::int64_t col0, std::int64_t rows, std::int64_t cols,
            float* tile) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* from = scratch_at(row0 + r, col0);
      std::copy(from, from + cols, tile + r * cols);
    }
  }
  void store(std::int64_t row0, std::int64_t col0, std::int64_t rows, std::int64_t cols,
             const float* tile) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* from = tile + r * cols;
      if (piece.last) {
        grad.write(expert, row0 + r, col0, cols, from);
      } else {
        std::copy(from, from + cols, scratch_at(row0 + r, col0));
      }
    }
  }
};

// The piece's scratch from `offset` floats on; nullptr: it needs none.
float* scratch_of(const RankPass& pass, const Piece& piece, std::int64_t offset) {
  if (piece.scratch < 0) return nullptr;
  return pass.at<float>(pass.layout.scratch_grads) +
         piece.scratch * ScratchGrads(pass.config).floats() + offset;
}

// out[row0 + i, col0 + j] += sum over rows r of left[r, left_col + i] right[r, col0 + j].
struct Product {
  RowPool left;
  std::int64_t left_col;
  RowPool right;
};

void add_product(const RankPass& pass, const Task& task, const Output& out, const Product& p,
                 std::int64_t row0, std::int64_t m, const ColumnSpan& cols, Worker& worker) {
  const std::int64_t rows = rows_in_piece(pass, out.piece, task.shared);
  const std::int64_t first = pass.pool_row(task.shared, out.piece.block);
  worker.c.resize(static_cast<std::size_t>(m * cols.size));
  if (!out.starts()) out.load(row0, cols.begin, m, cols.size, worker.c.data());
  gemm(GemmForm::wgrad, {m, cols.size, rows}, p.left.operand(first, rows, p.left_col, m, worker.a),
       p.right.operand(first, rows, cols.begin, cols.size, worker.b),
       {worker.c.data(), cols.size, !out.starts()});
  out.store(row0, cols.begin, m, cols.size, worker.c.data());
}

// out[0, col0 + i] += sum over rows r of weight[r] * rows[r, col0 + i].
void add_bias_grad(const RankPass& pass, const Task& task, const Output& out, const RowPool& pool,
                   bool weighted, std::int64_t col0, std::int64_t m, Worker& worker) {
  if (!out.grad.wanted()) return;
  worker.c.assign(static_cast<std::size_t>(m), 0.0F);
  if (!out.starts()) out.load(0, col0, 1, m, worker.c.data());
  worker.d.resize(static_cast<std::size_t>(m));
  const std::int64_t rows = rows_in_piece(pass, out.piece, task.shared);
  const std::int64_t first = pass.pool_row(task.shared, out.piece.block);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float weight = weighted ? pass.row_weight(task.shared, out.piece.block, r) : 1.0F;
    pool.format.load(pool.row(first + r), col0, col0 + m, worker.d.data());
    for (std::int64_t i = 0; i < m; ++i) {
      worker.c[static_cast<std::size_t>(i)] += weight * worker.d[static_cast<std::size_t>(i)];
    }
  }
  out.store(0, col0, 1, m, worker.c.data());
}

}  // namespace

void down_wgrad(RankPass& pass, const Task& task, Worker& worker) {
  const bool shared = task.shared;
  const Piece& piece = pass.schedule.tables.pieces[task.piece];
  const RowFormat inter = pass.inter_format(shared);
  const ExpertGradMatrices& grads = pass.grads.of(shared);
  const std::int64_t e = WeightSet::index(shared, task.expert);
  const std::int64_t row0 = static_cast<std::int64_t>(task.m) * tile_shape(Stage::down_wgrad).m;
  const std::int64_t m =
      std::min<std::int64_t>(tile_shape(Stage::down_wgrad).m, pass.config.hidden - row0);
  const ScratchGrads part(pass.config);
  const RowPool dy = pass.dy_pool(shared);
  if (grads.down.wanted()) {
    const RowPool h =
        pass.pool(shared ? pass.layout.shared_h_again : pass.layout.h_weighted, inter);
    add_product(pass, task, {grads.down, e, piece, scratch_of(pass, piece, part.gate_up)},
                {dy, row0, h}, row0, m, columns(Stage::down_wgrad, task.n, inter.cols), worker);
  }
  if (task.n == 0) {
    float* bias = scratch_of(pass, piece, part.gate_up + part.down + part.bias_gate_up);
    add_bias_grad(pass, task, {grads.bias_down, e, piece, bias}, dy, true, row0, m, worker);
  }
}

void gate_up_wgrad(RankPass& pass, const Task& task, Worker& worker) {
  const bool shared = task.shared;
  const Piece& piece = pass.schedule.tables.pieces[task.piece];
  const RowFormat inter = pass.inter_format(shared);
  const ExpertGradMatrices& grads = pass.grads.of(shared);
  const std::int64_t e = WeightSet::index(shared, task.expert);
  const std::int32_t half = pass.schedule.config.m_tiles(Stage::gate_up_wgrad, shared) / 2;
  const bool is_up = task.m >= half;
  const int tile_m = tile_shape(Stage::gate_up_wgrad).m;
  const std::int64_t row0 = static_cast<std::int64_t>(is_up ? task.m - half : task.m) * tile_m;
  const std::int64_t m = std::min<std::int64_t>(tile_m, inter.cols - row0);
  const ScratchGrads part(pass.config);

  RowPool d_rows{pass.at(shared ? pass.layout.shared_d_gate_up : pass.layout.d_gate_up), inter,
                 2 * inter.stride_bytes()};
  if (is_up) d_rows.data += inter.stride_bytes();
  const GradMatrix& grad = is_up ? grads.up : grads.gate;
  if (grad.wanted()) {
    float* sums = scratch_of(pass, piece, is_up ? part.gate_up / 2 : 0);
    add_product(pass, task, {grad, e, piece, sums},
                {d_rows, row0, pass.x_pool(shared, piece.block)}, row0, m,
                columns(Stage::gate_up_wgrad, task.n, pass.config.hidden), worker);
  }
  if (task.n == 0) {
    float* bias =
        scratch_of(pass, piece, part.gate_up + part.down + (is_up ? part.bias_gate_up / 2 : 0));
    add_bias_grad(pass, task, {is_up ? grads.bias_up : grads.bias_gate, e, piece, bias}, d_rows,
                  false, row0, m, worker);
  }
}

}  // namespace catamount::cpu
