// Walking a schedule: from an index to a task, from a task to its waits. Included by schedule.h.
#pragma once

#include "core/schedule.h"

namespace catamount {

CATAMOUNT_HD inline Task Schedule::task(Queue queue, std::int64_t index, std::int32_t* hint) const {
  const int q = static_cast<int>(queue);
  const Segment* segments = tables.segments[q];
  std::int32_t s = *hint;
  while (s + 1 < num_segments[q] && segments[s + 1].first_task <= index) ++s;
  *hint = s;
  const Segment& segment = segments[s];
  const auto local = static_cast<std::int32_t>(index - segment.first_task);
  Task task{segment.stage, segment.shared, segment.expert, segment.block, segment.piece, 0, 0};
  if (ScheduleConfig::is_wgrad(segment.stage)) {
    const std::int32_t m_tiles = config.m_tiles(segment.stage, segment.shared);
    task.m = local % m_tiles;
    task.n = local / m_tiles;
  } else if (ScheduleConfig::is_move(segment.stage)) {
    // Row after row: the first blocks of a run are whole first.
    task.block += local / config.parts_per_block();
    task.n = local % config.parts_per_block();
  } else if (segment.stage == final_stage()) {
    task.n = local;
  } else {
    task.block += local % segment.num_blocks;
    task.n = local / segment.num_blocks;
  }
  return task;
}

CATAMOUNT_HD inline std::int32_t Schedule::advances(const Task& task) const {
  if (task.stage == final_stage()) return -1;
  if (ScheduleConfig::is_wgrad(task.stage)) return counter(task.stage, task.piece);
  return counter(task.stage, unit(task.shared, task.block));
}

// Peers may reuse what this rank reads, and the sums may start, when all moves are done and, where
// rows are summed in place, the last GEMM of each row block.
CATAMOUNT_HD inline bool Schedule::counts_as_finished(Stage stage, bool shared) const {
  const Stage last_gemm = config.backward ? Stage::gate_up_dgrad : Stage::down;
  return ScheduleConfig::is_move(stage) || (stage == last_gemm && (shared || !sends_home()));
}

CATAMOUNT_HD inline int Schedule::waits(const Task& task, Wait out[kMaxWaits]) const {
  int n = 0;
  const auto on_unit = [&](Stage stage, std::int32_t unit_idx) {
    out[n++] = {stage, task.shared, false, unit_idx, unit_idx + 1};
  };
  const std::int32_t here = unit(task.shared, task.block);
  // The row block that had this one's slot before; none for the shared expert and the first window.
  const std::int32_t before = task.shared ? -1 : task.block - config.capacity_blocks;
  const bool recompute = config.backward && !kept(task.shared, task.block);
  switch (task.stage) {
    case Stage::dispatch:  // x slot
      if (!config.backward) {
        if (task.block >= config.x_slots()) on_unit(Stage::gate_up, task.block - config.x_slots());
      } else if (before >= 0) {
        on_unit(Stage::gate_up_wgrad, tables.block_piece[before]);
      }
      break;
    case Stage::gate_up:  // h slot; in backward the pre-activations' slot
      if (!task.shared) on_unit(Stage::dispatch, here);
      if (before >= 0) {
        if (!config.backward) {
          on_unit(Stage::down, before);
        } else {
          on_unit(Stage::down_dgrad, before);
        }
      }
      break;
    case Stage::down:  // y slot
      on_unit(Stage::gate_up, here);
      if (before >= 0) on_unit(Stage::send_home, before);
      break;
    case Stage::combine_grad:  // dy slot
      if (before >= 0) on_unit(Stage::down_wgrad, tables.block_piece[before]);
      break;
    case Stage::down_dgrad:  // slots of d(gate, up), of weight * h and of the router's gradients
      if (!task.shared) on_unit(Stage::combine_grad, here);
      if (recompute) on_unit(Stage::gate_up, here);
      if (before >= 0) {
        on_unit(Stage::gate_up_wgrad, tables.block_piece[before]);
        // Reads the router's gradients last, after gate_up_dgrad of the same block.
        on_unit(Stage::send_home, before);
      }
      break;
    case Stage::gate_up_dgrad:  // dx slot: down_dgrad has waited until the rows before went home
      on_unit(Stage::down_dgrad, here);
      break;
    case Stage::send_home:
      on_unit(config.backward ? Stage::gate_up_dgrad : Stage::down, here);
      break;
    case Stage::down_wgrad:
    case Stage::gate_up_wgrad: {
      const Piece& piece = tables.pieces[task.piece];
      if (piece.num_blocks > 0) {
        out[n++] = {Stage::down_dgrad, task.shared, false, here, here + piece.num_blocks};
        if (task.stage == Stage::gate_up_wgrad && !task.shared) {
          // Rows of x that forward kept are not pulled again.
          const std::int32_t pulled =
              config.kept_x && config.kept_blocks > here
                  ? (config.kept_blocks < here + piece.num_blocks ? config.kept_blocks
                                                                  : here + piece.num_blocks)
                  : here;
          if (pulled < here + piece.num_blocks) {
            out[n++] = {Stage::dispatch, false, false, pulled, here + piece.num_blocks};
          }
        }
      }
      if (piece.wait_piece >= 0) on_unit(task.stage, piece.wait_piece);
      break;
    }
    default:  // the final sums
      out[n++] = {task.stage, false, true, 0, 0};
      break;
  }
  return n;
}

}  // namespace catamount
