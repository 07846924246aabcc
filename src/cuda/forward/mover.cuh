// A mover: one warp that claims move tasks and copies rows through slots of shared memory, global
// to shared to global, several copies in flight. All lanes look rows up, lane 0 copies.
#pragma once

#include "cuda/device/pipeline.cuh"
#include "cuda/device/wait.cuh"
#include "cuda/forward/scheduler.cuh"
#include "cuda/ptx/tma.cuh"

namespace catamount::cuda {

struct RowCopy {
  const std::byte* from;
  std::byte* to;  // nullptr: nothing to copy
};

// The slots of one mover, and what is on its way through them:
//
//   load i     into slot i % 4, once store i - 4 has left it
//   store i-2  as soon as load i - 2 has arrived
class CopyPipe {
 public:
  __device__ CopyPipe(std::byte (*slots)[kMoveSlotBytes], std::uint64_t* full)
      : slots_(slots), full_(full) {}

  __device__ void copy(const std::byte* from, std::byte* to, std::uint32_t bytes) {
    const RingPosition<kMoveSlots> at(loads_++);
    ptx::cp_async_bulk_wait_group_read<1>();
    ptx::mbarrier_arrive_expect_tx(&full_[at.slot], bytes);
    ptx::cp_async_bulk_load(slots_[at.slot], from, bytes, &full_[at.slot], passing_);
    shift(to, bytes);
  }
  // Returns when all copies are written.
  __device__ void drain() {
    shift(nullptr, 0);
    shift(nullptr, 0);
    ptx::cp_async_bulk_wait_group<0>();
  }

 private:
  __device__ void shift(std::byte* to, std::uint32_t bytes) {
    if (to_[1] != nullptr) {
      const RingPosition<kMoveSlots> at(stores_++);
      wait_parity(&full_[at.slot], at.phase);
      ptx::cp_async_bulk_store(to_[1], slots_[at.slot], bytes_[1]);
      ptx::cp_async_bulk_commit_group();
    }
    to_[1] = to_[0];
    bytes_[1] = bytes_[0];
    to_[0] = to;
    bytes_[0] = bytes;
  }

  std::byte (*slots_)[kMoveSlotBytes];
  std::uint64_t* full_;
  std::uint32_t loads_ = 0;
  std::uint32_t stores_ = 0;
  std::byte* to_[2] = {};
  std::uint32_t bytes_[2] = {};
  std::uint64_t passing_ = ptx::evict_first_policy();
};

// dispatch: row i of a task comes from the rank that owns its token.
__device__ inline RowCopy dispatch_row(const ForwardParams& p, const Schedule& schedule,
                                       const Task& task, const BlockRows& block, std::int32_t i) {
  const RowSource source = p.routing.row_source[task.block * kBlockRows + i];
  const PublishedInputs& in = p.state->inputs[source.rank];
  const bool kept = p.kept_x != nullptr && schedule.kept(false, task.block);
  Bf16* to = kept ? p.kept_x + (block.first + i) * p.hidden : p.x_pool + (block.x + i) * p.hidden;
  return {p.peers.base[source.rank] + in.x_offset + source.token * in.x_stride,
          reinterpret_cast<std::byte*>(to)};
}

// send_home: it goes to slot (token, k) there; rows of own tokens are read in place, unless pool
// slots are reused.
__device__ inline RowCopy home_row(const ForwardParams& p, const Schedule& schedule,
                                   std::int32_t pool_row, std::int32_t table_row) {
  const RowSource source = p.routing.row_source[table_row];
  if (source.rank == p.peers.rank && !schedule.macrobatched()) return {nullptr, nullptr};
  const std::int64_t slot = source.token * p.topk + source.slot;
  return {reinterpret_cast<const std::byte*>(p.y_pool + pool_row * p.hidden),
          p.peers.base[source.rank] + p.home_rows_offset + slot * p.hidden * 2};
}

__device__ inline void move_rows(const ForwardParams& p, const Schedule& schedule, const Task& task,
                                 CopyPipe& pipe, int lane) {
  const BlockRows block = block_rows(p, schedule, task);
  const std::int32_t i = task.n * schedule.config.rows_per_move + lane;
  RowCopy row{nullptr, nullptr};
  if (lane < schedule.config.rows_per_move && i < block.valid) {
    row = task.stage == Stage::dispatch
              ? dispatch_row(p, schedule, task, block, i)
              : home_row(p, schedule, block.first + i, task.block * kBlockRows + i);
  }
  const auto bytes = static_cast<std::uint32_t>(p.hidden * 2);
  const std::uint32_t pieces = (bytes + kMoveSlotBytes - 1) / kMoveSlotBytes;
  const std::uint32_t piece = (bytes / 16 + pieces - 1) / pieces * 16;
  for (unsigned todo = __ballot_sync(0xFFFFFFFF, row.to != nullptr); todo != 0; todo &= todo - 1) {
    const int source = __ffs(static_cast<int>(todo)) - 1;
    const auto from =
        __shfl_sync(0xFFFFFFFF, reinterpret_cast<unsigned long long>(row.from), source);
    const auto to = __shfl_sync(0xFFFFFFFF, reinterpret_cast<unsigned long long>(row.to), source);
    if (lane != 0) continue;
    for (std::uint32_t begin = 0; begin < bytes; begin += piece) {
      pipe.copy(reinterpret_cast<const std::byte*>(from) + begin,
                reinterpret_cast<std::byte*>(to) + begin, min(piece, bytes - begin));
    }
  }
  if (lane == 0) pipe.drain();
  __syncwarp();
}

__device__ inline void run_mover(const ForwardParams& p, SharedStorage& s, CopyPipe pipe,
                                 int lane) {
  if (aborted(p)) return;
  Claims claims(p, Queue::move, 1, lane);
  const std::int64_t num_tasks = s.schedule.num_tasks[static_cast<int>(Queue::move)];
  std::int32_t hint = 0;
  for (;;) {
    const std::int64_t index = claims.next();
    if (index >= num_tasks) return;
    const Task task = s.schedule.task(Queue::move, index, &hint);
    if (!wait_all(p, s, task, lane)) return;
    ptx::fence_proxy_async();
    move_rows(p, s.schedule, task, pipe, lane);
    if (lane == 0) {
      if (task.stage == Stage::send_home) ptx::fence_acq_rel_sys();
      complete_task(p, s.schedule, s.schedule.advances(task),
                    s.schedule.counts_as_finished(task.stage, task.shared));
    }
    __syncwarp();
  }
}

// A CTA that only moves rows: the memory of the operand ring is its slots.
struct CommStorage {
  static constexpr int kMovers = 8;
  std::byte slots[kMovers][kMoveSlots][kMoveSlotBytes];
  std::uint64_t full[kMovers][kMoveSlots];
};
static_assert(sizeof(CommStorage) <= offsetof(SharedStorage, staging));

__device__ inline void run_comm(const ForwardParams& p, SharedStorage& s, int warp, int lane) {
  auto& own = *reinterpret_cast<CommStorage*>(&s);
  if (warp >= CommStorage::kMovers) return;
  if (lane == 0) {
    for (std::uint64_t& full : own.full[warp]) ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init();
  }
  __syncwarp();
  run_mover(p, s, CopyPipe(own.slots[warp], own.full[warp]), lane);
}

}  // namespace catamount::cuda
