// Building a schedule from the row blocks of each expert. Included by schedule.h.
//
// Sequential, and each step emits its segments in closed form from (window, step, track), so that a
// GPU may build them in parallel.
#pragma once

#include <initializer_list>

#include "core/schedule.h"

namespace catamount {
namespace schedule_build {

CATAMOUNT_HD inline std::int32_t min32(std::int32_t a, std::int32_t b) { return a < b ? a : b; }

// Runs and pieces, window by window. The shared expert leads window 0: it waits for nobody.
struct Cutter {
  const ScheduleConfig& config;
  const ScheduleTables& tables;
  Schedule& out;

  CATAMOUNT_HD std::int32_t add_piece(Piece piece) {
    tables.pieces[out.num_pieces] = piece;
    return out.num_pieces++;
  }

  CATAMOUNT_HD void add_runs(std::int32_t piece_idx) {
    const Piece& piece = tables.pieces[piece_idx];
    for (std::int32_t i = 0; i < piece.num_blocks; i += config.group_blocks) {
      const std::int32_t n = min32(config.group_blocks, piece.num_blocks - i);
      tables.runs[out.num_runs++] = {piece.expert, piece.block + i, n, piece_idx,
                                     i + n == piece.num_blocks};
    }
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
    if (config.shared_intermediate > 0) {
      add_runs(add_piece({config.num_local_experts, 0, out.num_shared_blocks, true, true, -1, -1}));
    }
    for (std::int32_t w = 0; w < out.num_windows; ++w) {
      for (std::int32_t p = 0; p < routed_pieces; ++p) {
        const Piece& piece = tables.pieces[p];
        if (piece.num_blocks > 0 && piece.block / config.capacity_blocks == w) add_runs(p);
      }
      tables.window_run[w + 1] = out.num_runs;
    }
  }
};

// Emits the segments of both queues.
struct Emitter {
  const ScheduleConfig& config;
  const ScheduleTables& tables;
  Schedule& out;

  CATAMOUNT_HD void emit(Queue queue, Stage stage, const Run& run, std::int64_t num_tasks) {
    if (num_tasks == 0) return;
    const int q = static_cast<int>(queue);
    const bool shared = run.expert == config.num_local_experts;
    tables.segments[q][out.num_segments[q]++] = {
        stage, shared, run.expert, run.block, run.num_blocks, run.piece, out.num_tasks[q]};
    out.num_tasks[q] += num_tasks;
    if (out.counts_as_finished(stage, shared)) out.finished_target += num_tasks;
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
    if (!(config.kept_x && out.kept(false, run.block))) emit_run(Queue::move, Stage::dispatch, run);
  }

  CATAMOUNT_HD void emit_rows_home(const Run& run) {
    if (run.expert == config.num_local_experts || !out.sends_home()) return;
    emit_run(Queue::move, Stage::send_home, run);
  }

  // Track `track` of the GEMM stages over one run.
  CATAMOUNT_HD void emit_gemm(int track, const Run& run) {
    const bool shared = run.expert == config.num_local_experts;
    if (!config.backward) {
      emit_run(Queue::compute, track == 0 ? Stage::gate_up : Stage::down, run);
    } else if (track == 0) {
      if (!out.kept(shared, run.block)) emit_run(Queue::compute, Stage::gate_up, run);
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

  CATAMOUNT_HD void emit_window(std::int32_t window) {
    const std::int32_t first = tables.window_run[window];
    const std::int32_t num_runs = tables.window_run[window + 1] - first;
    const std::int32_t lag = min32(lag_runs(), num_runs);
    const int num_tracks = config.backward ? 3 : 2;
    const std::int32_t gemm_lag = lag * (num_tracks - 1);
    const std::int32_t home_lag =
        gemm_lag + config.lead_runs;  // not less than gemm_lag: protocol.md
    for (std::int32_t step = 0; step < num_runs + home_lag; ++step) {
      if (step < num_runs) emit_rows_in(tables.runs[first + step]);
      for (int track = 0; track < num_tracks; ++track) {
        const std::int32_t i = step - lag * track;
        if (i >= 0 && i < num_runs) emit_gemm(track, tables.runs[first + i]);
      }
      const std::int32_t i = step - home_lag;
      if (i >= 0 && i < num_runs) emit_rows_home(tables.runs[first + i]);
    }
  }
};

}  // namespace schedule_build

CATAMOUNT_HD inline void build_schedule(const ScheduleConfig& config, std::int64_t tokens,
                                        const std::int32_t* block_begin,
                                        const ScheduleTables& tables, Schedule* out) {
  *out = Schedule{};
  out->config = config;
  out->tables = tables;
  out->tokens = tokens;
  out->num_blocks = block_begin[config.num_local_experts];
  out->num_shared_blocks =
      config.shared_intermediate > 0 ? static_cast<std::int32_t>(ceil_div(tokens, kBlockRows)) : 0;
  out->num_windows = static_cast<std::int32_t>(
      ceil_div(out->num_blocks > 0 ? out->num_blocks : 1, config.capacity_blocks));
  schedule_build::Cutter{config, tables, *out}.cut(block_begin);

  schedule_build::Emitter emitter{config, tables, *out};
  for (std::int32_t w = 0; w < out->num_windows; ++w) emitter.emit_window(w);
  if (config.backward) {  // experts without rows: a zero gradient is a gradient
    for (std::int32_t p = 0; p < out->num_pieces; ++p) {
      if (tables.pieces[p].num_blocks == 0) emitter.emit_wgrads(p);
    }
  }
  // At least one, also without tokens: it waits for the last barrier, before which no rank may
  // leave the pass and change what it has published.
  const Run sums{0, 0, 0, 0, false};
  const std::int64_t num_sums = ceil_div(tokens, config.tokens_per_sum);
  emitter.emit(Queue::compute, out->final_stage(), sums, num_sums > 0 ? num_sums : 1);
}

}  // namespace catamount
