// Building a schedule from the row blocks of each expert. Included by schedule.h.
//
// Sequential here. Each run, and each step's segments, follow from sums over what comes before, so
// that a GPU builds the same tables in parallel from the same pieces (cuda/routing/schedule.cuh).
#pragma once

#include <initializer_list>

#include "core/schedule.h"

namespace catamount {
namespace schedule_build {

CATAMOUNT_HD inline std::int32_t min32(std::int32_t a, std::int32_t b) { return a < b ? a : b; }

// Writes the runs of one piece at tables.runs[first_run]; returns how many.
CATAMOUNT_HD inline std::int32_t write_runs(const ScheduleConfig& config,
                                            const ScheduleTables& tables, std::int32_t piece_idx,
                                            std::int32_t first_run) {
  const Piece& piece = tables.pieces[piece_idx];
  std::int32_t run = first_run;
  for (std::int32_t i = 0; i < piece.num_blocks; i += config.group_blocks) {
    const std::int32_t n = min32(config.group_blocks, piece.num_blocks - i);
    tables.runs[run++] = {piece.expert, piece.block + i, n, piece_idx, i + n == piece.num_blocks};
  }
  return run - first_run;
}

// Runs and pieces, window by window. The shared expert leads window 0: it waits for nobody.
struct Cutter {
  const ScheduleConfig& config;
  const ScheduleTables& tables;
  Schedule& out;

  CATAMOUNT_HD std::int32_t add_piece(Piece piece) {
    tables.pieces[out.num_pieces] = piece;
    return out.num_pieces++;
  }

  CATAMOUNT_HD std::int32_t add_shared_piece() {
    return add_piece({config.num_local_experts, 0, out.num_shared_blocks, true, true, -1, -1});
  }

  CATAMOUNT_HD void add_runs(std::int32_t piece_idx) {
    out.num_runs += write_runs(config, tables, piece_idx, out.num_runs);
  }

  // Pieces of all experts, in order of expert, then window. Experts whose rows straddle windows
  // share two scratch gradients in turn: one may still be adding up while the next one starts.
  CATAMOUNT_HD void cut_pieces(const std::int32_t* block_begin) {
    std::int32_t straddlers = 0;
    std::int32_t last_piece_of[2] = {-1, -1};  // last pieces of the two straddlers before
    for (std::int32_t e = 0; e < config.num_local_experts; ++e) {
      const std::int32_t begin = block_begin[e];
      const std::int32_t end = block_begin[e + 1];
      const bool straddles =
          end > begin && begin / config.capacity_blocks != (end - 1) / config.capacity_blocks;
      const std::int32_t scratch = straddles ? straddlers % 2 : -1;
      std::int32_t wait_piece = straddles ? last_piece_of[scratch] : -1;
      std::int32_t block = begin;
      do {
        const std::int32_t window_end =
            (block / config.capacity_blocks + 1) * config.capacity_blocks;
        const std::int32_t piece_end = min32(end, window_end);
        const std::int32_t p = add_piece(
            {e, block, piece_end - block, block == begin, piece_end == end, scratch, wait_piece});
        for (std::int32_t b = block; b < piece_end; ++b) tables.block_piece[b] = p;
        wait_piece = p;
        block = piece_end;
      } while (block < end);
      if (straddles) {
        last_piece_of[scratch] = wait_piece;
        ++straddlers;
      }
    }
  }

  CATAMOUNT_HD void cut(const std::int32_t* block_begin) {
    cut_pieces(block_begin);
    const std::int32_t routed_pieces = out.num_pieces;
    tables.window_run[0] = 0;
    if (config.shared_intermediate > 0) add_runs(add_shared_piece());
    for (std::int32_t w = 0; w < out.num_windows; ++w) {
      for (std::int32_t p = 0; p < routed_pieces; ++p) {
        const Piece& piece = tables.pieces[p];
        if (piece.num_blocks > 0 && piece.block / config.capacity_blocks == w) add_runs(p);
      }
      tables.window_run[w + 1] = out.num_runs;
    }
  }
};

// What emitting adds up.
struct EmittedTotals {
  std::int32_t num_segments[kNumQueues] = {};
  std::int64_t num_tasks[kNumQueues] = {};
  std::int64_t finished_target = 0;

  CATAMOUNT_HD void store(Schedule* out) const {
    for (int q = 0; q < kNumQueues; ++q) {
      out->num_segments[q] = num_segments[q];
      out->num_tasks[q] = num_tasks[q];
    }
    out->finished_target = finished_target;
  }
};

// The tracks of one window: at each step at most one run of each.
struct WindowSteps {
  std::int32_t first_run;
  std::int32_t num_runs;
  std::int32_t lag;
  std::int32_t home_lag;

  CATAMOUNT_HD std::int32_t count() const { return num_runs + home_lag; }
};

// Emits the segments of both queues behind `totals`.
struct Emitter {
  const Schedule& schedule;
  EmittedTotals totals{};
  bool count_only = false;
  const ScheduleConfig& config = schedule.config;
  const ScheduleTables& tables = schedule.tables;

  CATAMOUNT_HD void emit(Queue queue, Stage stage, const Run& run, std::int64_t num_tasks) {
    if (num_tasks == 0) return;
    const int q = static_cast<int>(queue);
    const bool shared = run.expert == config.num_local_experts;
    if (!count_only) {
      tables.segments[q][totals.num_segments[q]] = {
          stage, shared, run.expert, run.block, run.num_blocks, run.piece, totals.num_tasks[q]};
    }
    ++totals.num_segments[q];
    totals.num_tasks[q] += num_tasks;
    if (schedule.counts_as_finished(stage, shared)) totals.finished_target += num_tasks;
  }

  CATAMOUNT_HD void emit_run(Queue queue, Stage stage, const Run& run) {
    const bool shared = run.expert == config.num_local_experts;
    emit(queue, stage, run,
         static_cast<std::int64_t>(run.num_blocks) * config.tasks_per_unit(stage, shared));
  }

  CATAMOUNT_HD void emit_wgrads(std::int32_t piece_idx) {
    const Piece& piece = tables.pieces[piece_idx];
    const bool shared = piece.expert == config.num_local_experts;
    const Run whole{piece.expert, piece.block, piece.num_blocks, piece_idx, true};
    for (const Stage stage : {Stage::down_wgrad, Stage::gate_up_wgrad}) {
      emit(Queue::compute, stage, whole, config.tasks_per_unit(stage, shared));
    }
  }

  CATAMOUNT_HD void emit_rows_in(const Run& run) {
    if (run.expert == config.num_local_experts) return;  // own tokens are read where they lie
    if (!config.backward) {
      emit_run(Queue::move, Stage::dispatch, run);
      return;
    }
    emit_run(Queue::move, Stage::combine_grad, run);
    // A run's blocks lie in one window, and what is kept is whole windows.
    if (!(config.kept_x && schedule.kept(false, run.block)))
      emit_run(Queue::move, Stage::dispatch, run);
  }

  CATAMOUNT_HD void emit_rows_home(const Run& run) {
    if (run.expert == config.num_local_experts || !schedule.sends_home()) return;
    emit_run(Queue::move, Stage::send_home, run);
  }

  // Track `track` of the GEMM stages over one run.
  CATAMOUNT_HD void emit_gemm(int track, const Run& run) {
    const bool shared = run.expert == config.num_local_experts;
    if (!config.backward) {
      emit_run(Queue::compute, track == 0 ? Stage::gate_up : Stage::down, run);
    } else if (track == 0) {
      if (!schedule.kept(shared, run.block)) emit_run(Queue::compute, Stage::gate_up, run);
    } else if (track == 1) {
      emit_run(Queue::compute, Stage::down_dgrad, run);
    } else {
      emit_run(Queue::compute, Stage::gate_up_dgrad, run);
      if (run.ends_piece) emit_wgrads(run.piece);
    }
  }

  CATAMOUNT_HD std::int32_t lag_runs() const {
    const std::int64_t tiles_per_run =
        static_cast<std::int64_t>(config.group_blocks) * config.n_tiles(Stage::gate_up, false);
    return static_cast<std::int32_t>(
        ceil_div(config.lag_tasks, tiles_per_run > 0 ? tiles_per_run : 1));
  }

  CATAMOUNT_HD int num_tracks() const { return config.backward ? 3 : 2; }

  CATAMOUNT_HD WindowSteps window(std::int32_t w) const {
    const std::int32_t first = tables.window_run[w];
    const std::int32_t num_runs = tables.window_run[w + 1] - first;
    const std::int32_t lag = min32(lag_runs(), num_runs);
    // home_lag: not less than the GEMMs' lag (protocol.md).
    return {first, num_runs, lag, lag * (num_tracks() - 1) + config.lead_runs};
  }

  CATAMOUNT_HD void emit_step(const WindowSteps& window, std::int32_t step) {
    const Run* runs = tables.runs + window.first_run;
    if (step < window.num_runs) emit_rows_in(runs[step]);
    for (int track = 0; track < num_tracks(); ++track) {
      const std::int32_t i = step - window.lag * track;
      if (i >= 0 && i < window.num_runs) emit_gemm(track, runs[i]);
    }
    const std::int32_t i = step - window.home_lag;
    if (i >= 0 && i < window.num_runs) emit_rows_home(runs[i]);
  }

  // After all windows.
  CATAMOUNT_HD void emit_rest() {
    if (config.backward) {  // experts without rows: a zero gradient is a gradient
      for (std::int32_t p = 0; p < schedule.num_pieces; ++p) {
        if (tables.pieces[p].num_blocks == 0) emit_wgrads(p);
      }
    }
    // At least one, also without tokens: it waits for the last barrier, before which no rank may
    // leave the pass and change what it has published.
    const Run sums{0, 0, 0, 0, false};
    const std::int64_t num_sums = ceil_div(schedule.tokens, config.tokens_per_sum);
    emit(Queue::compute, schedule.final_stage(), sums, num_sums > 0 ? num_sums : 1);
  }
};

// A schedule without runs, pieces and tasks.
CATAMOUNT_HD inline Schedule empty_schedule(const ScheduleConfig& config, std::int64_t tokens,
                                            std::int32_t num_blocks, const ScheduleTables& tables) {
  Schedule out{};
  out.config = config;
  out.tables = tables;
  out.tokens = tokens;
  out.num_blocks = num_blocks;
  out.num_shared_blocks =
      config.shared_intermediate > 0 ? static_cast<std::int32_t>(ceil_div(tokens, kBlockRows)) : 0;
  out.num_windows =
      static_cast<std::int32_t>(ceil_div(num_blocks > 0 ? num_blocks : 1, config.capacity_blocks));
  return out;
}

}  // namespace schedule_build

CATAMOUNT_HD inline void build_schedule(const ScheduleConfig& config, std::int64_t tokens,
                                        const std::int32_t* block_begin,
                                        const ScheduleTables& tables, Schedule* out) {
  using namespace schedule_build;
  *out = empty_schedule(config, tokens, block_begin[config.num_local_experts], tables);
  Cutter{config, tables, *out}.cut(block_begin);
  Emitter emitter{*out};
  for (std::int32_t w = 0; w < out->num_windows; ++w) {
    const WindowSteps window = emitter.window(w);
    for (std::int32_t step = 0; step < window.count(); ++step) emitter.emit_step(window, step);
  }
  emitter.emit_rest();
  emitter.totals.store(out);
}

}  // namespace catamount
