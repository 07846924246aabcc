// combine: out[t] = sum over k of weight * y(t, k) + shared expert. Its backward twin
// dispatch_grad: dx[t] = sum over k of dx(t, k) + shared expert's, and the router weights'
// gradients. Both run after the last barrier: FP32 sums in fixed order, k ascending, the shared
// expert last.
#include "core/dtype.h"
#include "cpu/stages.h"

namespace catamount::cpu {
namespace {

// Where the row of slot (t, k) lies; nullptr: masked.
const Bf16* slot_row(const RankPass& pass, const RowPool& pool, std::int64_t slot) {
  const std::int32_t row = pass.slot_row[slot];
  if (row == kMaskedSlot) return nullptr;
  if (row == kRemoteSlot || pass.schedule.macrobatched()) {
    return pass.at<Bf16>(pass.layout.home_rows) + slot * pass.config.hidden;
  }
  return reinterpret_cast<const Bf16*>(pool.row(row));
}

void add_row(const Bf16* row, float weight, std::int64_t n, float* sum) {
  for (std::int64_t j = 0; j < n; ++j) sum[j] += weight * to_float(row[j]);
}

void sum_rows(RankPass& pass, const Task& task, Worker& worker, const RowPool& rows,
              const RowPool& shared, bool weighted) {
  const std::int64_t hidden = pass.config.hidden;
  const std::int64_t topk = pass.config.topk;
  const std::int64_t chunk = pass.schedule.config.tokens_per_sum;
  const std::int64_t begin = task.n * chunk;
  worker.a.resize(static_cast<std::size_t>(hidden));
  for (std::int64_t t = begin; t < std::min(pass.tokens, begin + chunk); ++t) {
    std::fill(worker.a.begin(), worker.a.end(), 0.0F);
    for (std::int64_t k = 0; k < topk; ++k) {
      const std::int64_t slot = t * topk + k;
      const Bf16* row = slot_row(pass, rows, slot);
      if (row != nullptr) {
        add_row(row, weighted ? pass.topk_weights[slot] : 1.0F, hidden, worker.a.data());
      }
    }
    if (pass.config.shared_intermediate > 0) {
      add_row(reinterpret_cast<const Bf16*>(shared.row(t)), 1.0F, hidden, worker.a.data());
    }
    to_bf16(worker.a.data(), hidden, static_cast<Bf16*>(pass.out.data) + t * hidden);
  }
}

}  // namespace

void combine(RankPass& pass, const Task& task, Worker& worker) {
  const RowFormat row = RankPass::bf16_row(pass.config.hidden);
  sum_rows(pass, task, worker, pass.pool(pass.layout.y, row), pass.pool(pass.layout.shared_y, row),
           pass.config.router_weight == RouterWeight::in_combine);
}

void dispatch_grad(RankPass& pass, const Task& task, Worker& worker) {
  const RowFormat row = RankPass::bf16_row(pass.config.hidden);
  sum_rows(pass, task, worker, pass.pool(pass.layout.dx, row),
           pass.pool(pass.layout.shared_dx, row), false);
  const std::int64_t topk = pass.config.topk;
  const std::int64_t begin = task.n * pass.schedule.config.tokens_per_sum * topk;
  const std::int64_t end =
      std::min(pass.tokens * topk, begin + pass.schedule.config.tokens_per_sum * topk);
  for (std::int64_t slot = begin; slot < end; ++slot) {
    const std::int32_t source = pass.slot_row[slot];
    float grad = 0.0F;
    if (source == kRemoteSlot || (source >= 0 && pass.schedule.macrobatched())) {
      grad = pass.at<float>(pass.layout.home_weight_grads)[slot];
    } else if (source >= 0) {
      grad = router_grad(pass, source);
    }
    pass.d_topk_weights[slot] = grad;
  }
}

}  // namespace catamount::cpu
