// The scheduler warp: claims compute tasks in order, one ahead, waits for what they need, and mails
// them to the CTA's other warps.
#pragma once

#include "cuda/device/mailbox.cuh"
#include "cuda/device/wait.cuh"

namespace catamount::cuda {

// One lane claims, all know. The atomic is under way while the task before is being prepared.
class Claims {
 public:
  __device__ Claims(const ForwardParams& p, Queue queue, int lane)
      : cursor_(&p.state->cursor[static_cast<int>(queue)]), lane_(lane) {
    claim();
  }
  __device__ std::int64_t next() {
    const auto index = static_cast<std::int64_t>(__shfl_sync(0xFFFFFFFF, next_, 0));
    claim();
    return index;
  }

 private:
  __device__ void claim() {
    if (lane_ == 0) next_ = ptx::atom_relaxed_gpu_add(cursor_, 1);
  }
  unsigned long long* cursor_;
  int lane_;
  unsigned long long next_ = 0;
};

// The segments around the queue's cursor, in shared memory: decoding a task loads nothing else. To
// the schedule they are all there is.
class SegmentWindow {
 public:
  __device__ SegmentWindow(SharedStorage& s, int lane)
      : s_(s),
        lane_(lane),
        all_(s.schedule.tables.segments[kQueue]),
        total_(s.schedule.num_segments[kQueue]) {
    load(0);
  }

  // Indices must not decrease.
  __device__ Task task(std::int64_t index) {
    for (;;) {
      const Task task = s_.schedule.task(Queue::compute, index, &hint_);
      if (hint_ + 1 < kSegmentWindow || begin_ + kSegmentWindow >= total_) return task;
      load(begin_ + hint_);  // the next segment may be the right one
    }
  }

 private:
  static constexpr int kQueue = static_cast<int>(Queue::compute);

  __device__ void load(std::int32_t begin) {
    begin_ = begin;
    hint_ = 0;
    const std::int32_t left = total_ - begin;
    const std::int32_t count = left < kSegmentWindow ? left : kSegmentWindow;
    __syncwarp();
    if (lane_ < count) s_.segments[lane_] = all_[begin + lane_];
    if (lane_ == 0) {
      s_.schedule.tables.segments[kQueue] = s_.segments;
      s_.schedule.num_segments[kQueue] = count;
    }
    __syncwarp();
  }

  SharedStorage& s_;
  int lane_;
  const Segment* all_;
  std::int32_t total_;
  std::int32_t begin_ = 0;
  std::int32_t hint_ = 0;
};

struct BlockRows {
  std::int32_t first;  // row in the pools
  std::int32_t valid;
};
__device__ inline BlockRows block_rows(const ForwardParams& p, const Schedule& schedule,
                                       const Task& task) {
  const std::int64_t rows = task.shared ? p.tokens : p.routing.expert_rows[task.expert];
  const std::int32_t before =
      task.shared ? task.block : task.block - p.routing.block_begin[task.expert];
  const std::int64_t left = rows - static_cast<std::int64_t>(before) * kBlockRows;
  const std::int32_t slot = task.shared ? task.block : schedule.slot(task.block);
  return {slot * kBlockRows, static_cast<std::int32_t>(left < kBlockRows ? left : kBlockRows)};
}

__device__ inline Mail make_mail(const ForwardParams& p, const Schedule& schedule,
                                 const Task& task, std::uint32_t ring) {
  Mail mail{};
  mail.stage = task.stage;
  mail.shared = task.shared;
  mail.expert = task.expert;
  mail.block = task.block;
  mail.n = task.n;
  mail.ring = ring;
  if (task.stage == Stage::combine) return mail;
  const BlockRows rows = block_rows(p, schedule, task);
  mail.row = rows.first;
  mail.valid_rows = rows.valid;
  mail.counter = schedule.advances(task);
  mail.finishes = schedule.counts_as_finished(task.stage, task.shared);
  const bool kept = schedule.kept(task.shared, task.block);
  mail.kept_x = p.kept_x != nullptr && kept && !task.shared;
  const Bf16* pre = task.shared ? p.kept_shared_pre_activations : p.kept_pre_activations;
  mail.keep = pre != nullptr && kept;
  const std::int64_t width = task.shared ? p.shared_intermediate : p.intermediate;
  const std::int64_t depth = task.stage == Stage::gate_up ? p.hidden : width;
  mail.k_blocks = static_cast<std::int32_t>((depth + kBlockK - 1) / kBlockK);
  return mail;
}

__device__ inline void run_scheduler(const ForwardParams& p, SharedStorage& s, int lane) {
  Claims claims(p, Queue::compute, lane);
  SegmentWindow window(s, lane);
  const std::int64_t num_tasks = s.schedule.num_tasks[static_cast<int>(Queue::compute)];
  std::uint32_t ring = 0;
  for (std::uint32_t i = 0;; ++i) {
    const std::int64_t index = claims.next();
    bool go_on = index < num_tasks;
    Mail mail{};
    if (go_on) {
      const Task task = window.task(index);
      mail = make_mail(p, s.schedule, task, ring);
      ring += static_cast<std::uint32_t>(mail.k_blocks);
      go_on = wait_all(p, s, task, lane);
    }
    mail.stop = !go_on;
    if (lane == 0) {
      send(s, i, mail);
      if (!go_on) send(s, i + 1, mail);  // one end for each consumer
    }
    __syncwarp();
    if (!go_on) return;
  }
}

}  // namespace catamount::cuda
