// dispatch and its backward twin combine_grad: pull the rows of one row block (or a part of it)
// from the ranks that own the tokens. The reader knows itself when its bytes have arrived.
#include <cstring>

#include "cpu/stages.h"

namespace catamount::cpu {
namespace {

void pull_rows(RankPass& pass, const Task& task, const RowPool& to, std::int64_t row0,
               std::int64_t PublishedInputs::*offset, std::int64_t PublishedInputs::*stride) {
  const std::int64_t rows = pass.rows_in_block(false, task.expert, task.block);
  const std::int64_t begin = static_cast<std::int64_t>(task.n) * pass.schedule.config.rows_per_move;
  const std::int64_t end = std::min<std::int64_t>(rows, begin + pass.schedule.config.rows_per_move);
  const auto bytes = static_cast<std::size_t>(to.format.stride_bytes());
  for (std::int64_t i = begin; i < end; ++i) {
    const RowSource& source = pass.routing.row_source[RankPass::table_row(task.block) + i];
    const PublishedInputs& peer = pass.inputs[static_cast<std::size_t>(source.rank)];
    const std::byte* from =
        pass.peers.base[source.rank] + peer.*offset + source.token * (peer.*stride);
    // A BF16 row in the caller's tensor has no padding behind it.
    std::memcpy(to.row(row0 + i), from, std::min(bytes, static_cast<std::size_t>(peer.*stride)));
    if (source.rank != pass.rank()) pass.bytes_pulled += static_cast<std::int64_t>(bytes);
  }
}

}  // namespace

void dispatch(RankPass& pass, const Task& task, Worker&) {
  pull_rows(pass, task, pass.x_pool(false, task.block), pass.x_row(false, task.block),
            &PublishedInputs::x_offset, &PublishedInputs::x_stride);
}

void combine_grad(RankPass& pass, const Task& task, Worker&) {
  pull_rows(pass, task, pass.dy_pool(false), pass.pool_row(false, task.block),
            &PublishedInputs::dy_offset, &PublishedInputs::dy_stride);
}

}  // namespace catamount::cpu
