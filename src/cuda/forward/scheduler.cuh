// The scheduler warp: claims compute tasks in order, waits for what they need, and mails them to
// the CTA's other warps, one ahead.
#pragma once

#include "cuda/device/mailbox.cuh"
#include "cuda/device/wait.cuh"
#include "cuda/ptx/cluster.cuh"

namespace catamount::cuda {

// One lane claims `count` tasks at a time, all know. The atomic is under way while the claim before
// is being prepared.
class Claims {
 public:
  __device__ Claims(const ForwardParams& p, Queue queue, int count, int lane)
      : cursor_(&p.state->cursor[static_cast<int>(queue)]), count_(count), lane_(lane) {
    claim();
  }
  __device__ std::int64_t next() {
    const auto index = static_cast<std::int64_t>(__shfl_sync(0xFFFFFFFF, next_, 0));
    claim();
    return index;
  }

 private:
  __device__ void claim() {
    if (lane_ == 0) {
      next_ = ptx::atom_relaxed_gpu_add(cursor_, static_cast<unsigned long long>(count_));
    }
  }
  unsigned long long* cursor_;
  int count_;
  int lane_;
  unsigned long long next_ = 0;
};

// A cluster's claims: CTA 0 claims, and tells CTA 1.
class ClusterClaims {
 public:
  __device__ ClusterClaims(SharedStorage& s, std::uint32_t cta, int lane)
      : s_(s), cta_(cta), lane_(lane) {}

  __device__ void tell(std::int64_t index) {
    if (lane_ == 0) {
      wait_parity(&s_.claim_empty[at_.slot], at_.phase ^ 1);
      ptx::st_async(ptx::mapa(&s_.claim[at_.slot], 1), index,
                    ptx::mapa(&s_.claim_full[at_.slot], 1));
    }
    at_.advance();
  }
  __device__ std::int64_t hear() {
    if (lane_ == 0) ptx::mbarrier_arrive_expect_tx(&s_.claim_full[at_.slot], sizeof(std::int64_t));
    wait_parity(&s_.claim_full[at_.slot], at_.phase);
    const std::int64_t index = s_.claim[at_.slot];
    __syncwarp();
    if (lane_ == 0) ptx::mbarrier_arrive_cluster(ptx::mapa(&s_.claim_empty[at_.slot], 0));
    at_.advance();
    return index;
  }

 private:
  SharedStorage& s_;
  std::uint32_t cta_;
  int lane_;
  RingPosition<kClaimSlots> at_;
};

// The segments around the queue's cursor, in shared memory: decoding a task loads nothing else. To
// the schedule they are all there is.
class SegmentWindow {
 public:
  __device__ SegmentWindow(SharedStorage& s, int lane)
      : s_(s),
        lane_(lane),
        all_(s.schedule.tables.segments[kQueue]),
        total_(s.schedule.num_segments[kQueue]),
        num_tasks_(s.schedule.num_tasks[kQueue]) {
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

  // The segment of the latest task, and whether task `index` is of the same one.
  __device__ bool reaches(std::int64_t index) const {
    if (hint_ + 1 < count_) return index < s_.segments[hint_ + 1].first_task;
    return index < num_tasks_;  // no segment follows
  }

 private:
  static constexpr int kQueue = static_cast<int>(Queue::compute);

  __device__ void load(std::int32_t begin) {
    begin_ = begin;
    hint_ = 0;
    const std::int32_t left = total_ - begin;
    count_ = left < kSegmentWindow ? left : kSegmentWindow;
    __syncwarp();
    if (lane_ < count_) s_.segments[lane_] = all_[begin + lane_];
    if (lane_ == 0) {
      s_.schedule.tables.segments[kQueue] = s_.segments;
      s_.schedule.num_segments[kQueue] = count_;
    }
    __syncwarp();
  }

  SharedStorage& s_;
  int lane_;
  const Segment* all_;
  std::int32_t total_;
  std::int64_t num_tasks_;
  std::int32_t begin_ = 0;
  std::int32_t hint_ = 0;
  std::int32_t count_ = 0;
};

struct BlockRows {
  std::int32_t first;  // row in the pools
  std::int32_t x;      // row in the ring of x
  std::int32_t valid;
};
__device__ inline BlockRows block_rows(const ForwardParams& p, const Schedule& schedule,
                                       const Task& task) {
  const std::int64_t rows = task.shared ? p.tokens : p.routing.expert_rows[task.expert];
  const std::int32_t before =
      task.shared ? task.block : task.block - p.routing.block_begin[task.expert];
  const std::int64_t left = rows - static_cast<std::int64_t>(before) * kBlockRows;
  const std::int32_t slot = task.shared ? task.block : schedule.slot(task.block);
  const std::int32_t x_slot = task.shared ? task.block : schedule.x_slot(task.block);
  return {slot * kBlockRows, x_slot * kBlockRows,
          static_cast<std::int32_t>(left < kBlockRows ? left : kBlockRows)};
}

__device__ inline Mail make_mail(const ForwardParams& p, const Schedule& schedule,
                                 const Task& task) {
  Mail mail{};
  mail.stage = task.stage;
  mail.shared = task.shared;
  mail.expert = task.expert;
  mail.block = task.block;
  mail.n = task.n;
  if (task.stage == Stage::combine) return mail;
  const BlockRows rows = block_rows(p, schedule, task);
  mail.row = rows.first;
  mail.valid_rows = rows.valid;
  mail.counter = schedule.advances(task);
  mail.finishes = schedule.counts_as_finished(task.stage, task.shared);
  const bool kept = schedule.kept(task.shared, task.block);
  mail.kept_x = p.kept_x != nullptr && kept && !task.shared;
  mail.load_row = task.stage == Stage::gate_up && !mail.kept_x ? rows.x : rows.first;
  const Bf16* pre = task.shared ? p.kept_shared_pre_activations : p.kept_pre_activations;
  mail.keep = pre != nullptr && kept;
  const std::int64_t width = task.shared ? p.shared_intermediate : p.intermediate;
  const std::int64_t depth = task.stage == Stage::gate_up ? p.hidden : width;
  mail.k_blocks = static_cast<std::int32_t>((depth + kBlockK - 1) / kBlockK);
  return mail;
}

// A cluster claims two tasks at a time. Mostly they are of one segment and run side by side; CTAs
// multiply by the same B where their tiles have the same n. Two tasks of different segments run one
// after the other (the second may wait for the first), the other CTA idling in step.
class Scheduler {
 public:
  __device__ Scheduler(const ForwardParams& p, SharedStorage& s, std::uint32_t cta, int lane)
      : p_(p), s_(s), cta_(cta), lane_(lane), window_(s, lane) {}

  __device__ void run() {
    constexpr int kQueue = static_cast<int>(Queue::compute);
    const std::int64_t num_tasks = s_.schedule.num_tasks[kQueue];
    ClusterClaims told(s_, cta_, lane_);
    failed_ = aborted(p_);
    if (cta_ == 0) {
      Claims claims(p_, Queue::compute, kCluster, lane_);
      for (;;) {
        const std::int64_t index = failed_ ? num_tasks : claims.next();
        told.tell(index);
        if (index >= num_tasks) break;
        prepare(index, num_tasks);
      }
    } else {
      for (;;) {
        const std::int64_t index = told.hear();
        if (index >= num_tasks) break;
        prepare(index, num_tasks);
      }
    }
    Mail stop{};
    stop.stop = true;
    for (int i = 0; i < kConsumers; ++i) post(stop);
  }

 private:
  __device__ void prepare(std::int64_t index, std::int64_t num_tasks) {
    const Task first = window_.task(index);
    if (window_.reaches(index + 1)) {
      const Task second = window_.task(index + 1);
      step(cta_ == 0 ? first : second, true, first.n == second.n);
      return;
    }
    step(first, cta_ == 0, false);
    if (index + 1 < num_tasks) step(window_.task(index + 1), cta_ == 1, false);
  }

  __device__ void step(const Task& task, bool mine, bool paired) {
    Mail mail = make_mail(p_, s_.schedule, task);
    mail.ring = ring_;
    mail.paired = paired && task.stage != Stage::combine;
    ring_ += static_cast<std::uint32_t>(mail.k_blocks);
    if (mine && !failed_) failed_ = !wait_all(p_, s_, task, lane_);
    mail.idle = !mine;
    post(mail);
  }

  __device__ void post(const Mail& mail) {
    if (lane_ == 0) send(s_, index_, mail);
    ++index_;
    __syncwarp();
  }

  const ForwardParams& p_;
  SharedStorage& s_;
  std::uint32_t cta_;
  int lane_;
  SegmentWindow window_;
  std::uint32_t ring_ = 0;
  std::uint32_t index_ = 0;
  // From here on nothing is waited for, and nothing claimed; what the other CTA has claimed is
  // computed from whatever lies there, to keep the rings in step.
  bool failed_ = false;
};

}  // namespace catamount::cuda
