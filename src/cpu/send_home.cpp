// send_home: finished rows of a row block go to slot (token, k) of the rank that owns the token; in
// backward with them the gradient of the slot's router weight. Rows of this rank's own tokens are
// read where they lie, unless pool slots are reused (macrobatches).
#include <cstring>

#include "cpu/stages.h"

namespace catamount::cpu {

void send_home(RankPass& pass, const Task& task, Worker&) {
  const ScheduleConfig& schedule = pass.schedule.config;
  const RowPool rows = pass.pool(schedule.backward ? pass.layout.dx : pass.layout.y,
                                 RankPass::bf16_row(pass.config.hidden));
  const auto bytes = static_cast<std::size_t>(2 * pass.config.hidden);
  const std::int64_t row0 = pass.pool_row(false, task.block);
  const std::int64_t begin = static_cast<std::int64_t>(task.n) * schedule.rows_per_move;
  const std::int64_t end = std::min<std::int64_t>(
      pass.rows_in_block(false, task.expert, task.block), begin + schedule.rows_per_move);
  for (std::int64_t i = begin; i < end; ++i) {
    const RowSource& source = pass.routing.row_source[RankPass::table_row(task.block) + i];
    const bool own = source.rank == pass.rank();
    if (own && !pass.schedule.macrobatched()) continue;
    std::byte* home = pass.peers.base[source.rank];
    const std::int64_t slot = source.token * pass.config.topk + source.slot;
    std::memcpy(home + pass.layout.home_rows.offset + static_cast<std::size_t>(slot) * bytes,
                rows.row(row0 + i), bytes);
    if (schedule.backward) {
      reinterpret_cast<float*>(home + pass.layout.home_weight_grads.offset)[slot] =
          router_grad(pass, row0 + i);
    }
    if (!own) pass.bytes_sent_home += static_cast<std::int64_t>(bytes);
  }
}

}  // namespace catamount::cpu
