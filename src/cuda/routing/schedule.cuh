// The schedule, by one CTA while others place rows: the same tables, bit for bit, as core's
// build_schedule. What core adds up one after the other are sums over the threads here.
#pragma once

#include "cuda/routing/count.cuh"

namespace catamount::cuda::routing {

// Consecutive items of each thread.
struct ThreadPart {
  std::int32_t begin;
  std::int32_t end;
};
__device__ inline ThreadPart thread_part(std::int32_t num) {
  const std::int32_t size = (num + kThreads - 1) / kThreads;
  const std::int32_t begin = min(size * thread_index(), num);
  return {begin, min(begin + size, num)};
}

// expert_rows and block_begin; returns the number of row blocks.
__device__ inline std::int32_t write_experts(const RoutingParams& p, Shared& s) {
  std::int64_t blocks = 0;
  const int num_experts = p.schedule.num_local_experts;
  for (int e = 0; e < num_experts; e += kWindow) {
    const int num = min(num_experts - e, kWindow);
    sum_counts(p, s, e, num, 0);
    place_experts(s, num, &blocks);
    if (const int i = thread_index(); i < num) {
      p.tables.expert_rows[e + i] = s.total[i];
      p.tables.block_begin[e + i] = s.first_row[i] / kBlockRows;
    }
  }
  if (thread_index() == 0) p.tables.block_begin[num_experts] = static_cast<std::int32_t>(blocks);
  __syncthreads();
  return static_cast<std::int32_t>(blocks);
}

// Without macrobatches every expert is one piece.
__device__ inline void write_whole_pieces(const ScheduleConfig& config,
                                          const ScheduleTables& tables,
                                          const std::int32_t* block_begin) {
  for (int e = warp_index(); e < config.num_local_experts; e += kWarps) {
    const std::int32_t begin = block_begin[e];
    const std::int32_t end = block_begin[e + 1];
    if (lane_index() == 0) tables.pieces[e] = {e, begin, end - begin, true, true, -1, -1};
    for (std::int32_t b = begin + lane_index(); b < end; b += 32) tables.block_piece[b] = e;
  }
}

__device__ inline void cut_pieces(Schedule& schedule, const std::int32_t* block_begin) {
  const ScheduleConfig& config = schedule.config;
  schedule_build::Cutter cutter{config, schedule.tables, schedule};
  if (!schedule.macrobatched()) write_whole_pieces(config, schedule.tables, block_begin);
  if (thread_index() == 0) {
    if (schedule.macrobatched()) {
      cutter.cut_pieces(block_begin);
    } else {
      schedule.num_pieces = config.num_local_experts;
    }
    schedule.tables.window_run[0] = 0;
    if (config.shared_intermediate > 0) cutter.add_runs(cutter.add_shared_piece());
    if (schedule.num_blocks == 0) schedule.tables.window_run[1] = schedule.num_runs;
  }
  __syncthreads();
}

__device__ inline void cut_runs(Shared& s, Schedule& schedule) {
  const ScheduleConfig& config = schedule.config;
  const ScheduleTables& tables = schedule.tables;
  const std::int32_t routed = schedule.num_pieces - (config.shared_intermediate > 0 ? 1 : 0);
  const ThreadPart part = thread_part(routed);
  std::int64_t mine = 0;
  for (std::int32_t i = part.begin; i < part.end; ++i) {
    mine += ceil_div(tables.pieces[i].num_blocks, config.group_blocks);
  }
  std::int64_t all = 0;
  auto run = static_cast<std::int32_t>(schedule.num_runs + exclusive_sum(s, mine, &all));
  for (std::int32_t i = part.begin; i < part.end; ++i) {
    const Piece& piece = tables.pieces[i];
    if (piece.num_blocks == 0) continue;
    run += schedule_build::write_runs(config, tables, i, run);
    // The last piece of its window knows where the window's runs end.
    const std::int32_t window = piece.block / config.capacity_blocks;
    const std::int32_t window_end = min((window + 1) * config.capacity_blocks, schedule.num_blocks);
    if (piece.block + piece.num_blocks == window_end) tables.window_run[window + 1] = run;
  }
  __syncthreads();
  if (thread_index() == 0) schedule.num_runs += static_cast<std::int32_t>(all);
  __syncthreads();
}

// Adds to `before` what the threads before this one have counted; returns the sum over all.
__device__ inline schedule_build::EmittedTotals sum_totals(
    Shared& s, const schedule_build::EmittedTotals& mine, schedule_build::EmittedTotals* before) {
  static_assert(kNumQueues == 2);
  // Both numbers of segments in one: they are 32-bit.
  constexpr int kHalf = 32;
  std::int64_t values[4] = {
      mine.num_tasks[0], mine.num_tasks[1], mine.finished_target,
      mine.num_segments[0] + (static_cast<std::int64_t>(mine.num_segments[1]) << kHalf)};
  std::int64_t totals[4];
  exclusive_sums(s, values, totals);
  schedule_build::EmittedTotals all = *before;
  const auto add_sums = [](const std::int64_t(&sums)[4], schedule_build::EmittedTotals* to) {
    to->num_tasks[0] += sums[0];
    to->num_tasks[1] += sums[1];
    to->finished_target += sums[2];
    to->num_segments[0] += static_cast<std::int32_t>(sums[3]);
    to->num_segments[1] += static_cast<std::int32_t>(sums[3] >> kHalf);
  };
  add_sums(values, before);
  add_sums(totals, &all);
  return all;
}

__device__ inline void emit_steps(schedule_build::Emitter& emitter,
                                  const schedule_build::WindowSteps& window,
                                  const ThreadPart& part) {
  for (std::int32_t step = part.begin; step < part.end; ++step) emitter.emit_step(window, step);
}

__device__ inline void emit_tasks(Shared& s, Schedule& schedule) {
  using schedule_build::EmittedTotals;
  EmittedTotals totals{};
  for (std::int32_t w = 0; w < schedule.num_windows; ++w) {
    schedule_build::Emitter counter{schedule, {}, true};
    const schedule_build::WindowSteps window = counter.window(w);
    const ThreadPart part = thread_part(window.count());
    emit_steps(counter, window, part);
    EmittedTotals before = totals;
    totals = sum_totals(s, counter.totals, &before);
    schedule_build::Emitter emitter{schedule, before};
    emit_steps(emitter, window, part);
  }
  if (thread_index() == 0) {
    schedule_build::Emitter rest{schedule, totals};
    rest.emit_rest();
    rest.totals.store(&schedule);
  }
  __syncthreads();
}

// Every rank finds the same fault. They part at the last barrier, so that nobody's ids go away
// while another still reads them (leave.cuh waits for it).
__device__ inline void report_bad_id(const RoutingParams& p) {
  if (thread_index() != 0 || aborted(p.state)) return;
  const unsigned long long key = ~p.routing->bad_slot_inverted;
  const auto rank = static_cast<int>(key >> 48);
  const auto index = static_cast<std::int64_t>(key & 0xFFFFFFFFFFFFULL);
  const PublishedInputs& in = control_of(p.peers, rank).inputs;
  const RankSlots slots{in.tokens, p.peers.base[rank] + in.topk_idx_offset,
                        in.topk_idx_is_64bit != 0, nullptr};
  report(
      p.host_error,
      {DeviceFault::invalid_routing, Stage::routing, Stage::routing, p.peers.rank, rank,
       static_cast<std::int32_t>(index / p.topk), static_cast<std::int32_t>(index % p.topk),
       static_cast<std::uint64_t>(p.num_experts), static_cast<std::uint64_t>(slots.expert(index))});
  p.state->abort = 1;
  arrive(p.state, p.peers, Barrier::last);
}

__device__ inline void build_schedule(const RoutingParams& p, Shared& s) {
  if (!wait_counted(p, s)) return report_bad_id(p);
  const std::int32_t num_blocks = write_experts(p, s);
  if (thread_index() == 0) {
    s.schedule =
        schedule_build::empty_schedule(p.schedule, p.inputs.tokens, num_blocks, p.schedule_tables);
  }
  if (const int r = thread_index(); r < p.peers.ep_size) {
    p.state->inputs[r] = control_of(p.peers, r).inputs;
  }
  __syncthreads();
  cut_pieces(s.schedule, p.tables.block_begin);
  cut_runs(s, s.schedule);
  emit_tasks(s, s.schedule);
  if (thread_index() == 0) p.state->schedule = s.schedule;
}

}  // namespace catamount::cuda::routing
