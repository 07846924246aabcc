#include "cpu/rank_pass.h"

namespace catamount::cpu {

RowPool RankPass::x_pool(bool shared, std::int32_t block) const {
  if (shared)
    return {const_cast<std::byte*>(x_rows), hidden_format(),
            inputs[static_cast<std::size_t>(rank())].x_stride};
  if (keeps_x(block)) {
    return {saved + saved_layout.x.offset, hidden_format(), hidden_format().stride_bytes()};
  }
  return pool(schedule.config.backward ? layout.x_again : layout.x, hidden_format());
}

RowPool RankPass::dy_pool(bool shared) const {
  if (shared)
    return {const_cast<std::byte*>(dy_rows), hidden_format(),
            inputs[static_cast<std::size_t>(rank())].dy_stride};
  return pool(layout.dy, hidden_format());
}

RowPool RankPass::pre_activations(bool shared, std::int32_t block) const {
  const std::int64_t width = shared ? config.shared_intermediate : config.intermediate;
  RowPool rows{nullptr, bf16_row(2 * width), 4 * width};
  if (saved != nullptr && schedule.kept(shared, block)) {
    rows.data =
        saved +
        (shared ? saved_layout.shared_pre_activations : saved_layout.pre_activations).offset;
  } else if (schedule.config.backward) {
    rows.data = at(shared ? layout.shared_pre_activations : layout.pre_activations);
  }
  return rows;
}

}  // namespace catamount::cpu
