// The schedule of one pass on one rank: tasks, their order, the counters each waits for and the one
// it advances. The CPU backend, the CUDA kernels and the protocol checker all walk this one object.
//
// Two queues, each claimed strictly in order: `move` (rows in, rows home) and `compute` (GEMM
// tiles, final sums). A task waits only for tasks that come earlier in one total order over both
// queues, so any number of workers finishes the pass (docs/protocol.md has the proof, protocol_test
// the check).
//
// Work is cut into runs (up to `group_blocks` row blocks of one expert) and runs into windows, the
// macrobatches: a window holds at most `capacity_blocks` row blocks, and a row block b lives in
// slot b % capacity_blocks of every pool. Inside a window each stage is a track that follows its
// predecessor at a lag, so that nobody waits for the task claimed just before:
//
//   step       0        1        2        3        4
//   gate_up    run 0    run 1    run 2    run 3    run 4
//   down                         run 0    run 1    run 2        (lag 2)
#pragma once

#include <cstdint>

#include "core/macros.h"
#include "core/stage.h"
#include "core/tile.h"

namespace catamount {

enum class Queue : std::uint8_t { move, compute };
inline constexpr int kNumQueues = 2;

// What is known before the pass, the same on host and device.
struct ScheduleConfig {
  bool backward = false;
  TileSet tile_set = TileSet::cpu;
  int ep_size = 1;
  int num_local_experts = 1;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t shared_intermediate = 0;  // 0: no shared expert
  std::int32_t max_blocks = 0;           // routed row blocks under the worst routing
  std::int32_t max_shared_blocks = 0;    // row blocks of max_tokens, if there is a shared expert
  std::int32_t capacity_blocks = 1;      // row blocks of a pool
  std::int32_t x_blocks = kAllBlocks;    // forward: row blocks of the pool of x, if fewer
  std::int32_t kept_blocks = 0;          // backward: blocks below it have kept pre-activations
  bool kept_x = false;                   // backward: and kept rows of x
  bool kept_shared = false;              // backward: the shared expert's pre-activations are kept
  std::int32_t group_blocks = 8;         // row blocks of a run, at most
  std::int32_t lag_tasks = 0;            // tiles between a stage and the stage that consumes it
  std::int32_t lead_runs = 4;            // runs that dispatch is ahead of send_home, beyond the lag
  std::int32_t rows_per_move = kBlockRows;
  std::int32_t tokens_per_sum = 64;

  static constexpr std::int32_t kAllBlocks = 0x7fffffff;

  // x rows are dead once gate_up has read them, so forward needs no more of them than the tiles at
  // work and those to come next: a ring that stays in the cache. Not less than group_blocks: a
  // block waits for one of an earlier run.
  CATAMOUNT_HD std::int32_t x_slots() const {
    return backward || x_blocks > capacity_blocks ? capacity_blocks : x_blocks;
  }
  CATAMOUNT_HD std::int32_t max_windows() const {
    return static_cast<std::int32_t>(ceil_div(max_blocks > 0 ? max_blocks : 1, capacity_blocks));
  }
  CATAMOUNT_HD std::int32_t max_pieces() const { return num_local_experts + max_windows() + 1; }
  CATAMOUNT_HD std::int32_t max_runs() const {
    return static_cast<std::int32_t>(ceil_div(max_blocks, group_blocks) + num_local_experts +
                                     max_windows() + ceil_div(max_shared_blocks, group_blocks) + 1);
  }
  CATAMOUNT_HD std::int32_t max_segments() const { return 3 * max_runs() + 2 * max_pieces() + 1; }
  // Counters: one per (stage, unit), one for "everything that peers or the sums wait for is done".
  CATAMOUNT_HD std::int32_t max_units() const {
    const std::int32_t blocks = max_blocks + max_shared_blocks;
    return blocks > max_pieces() ? blocks : max_pieces();
  }
  CATAMOUNT_HD std::int32_t num_counters() const { return kNumStages * max_units() + 1; }
  CATAMOUNT_HD std::int32_t finished_counter() const { return kNumStages * max_units(); }

  CATAMOUNT_HD TileShape tile(Stage stage) const { return tile_shape(tile_set, stage); }
  CATAMOUNT_HD std::int64_t width(bool shared) const {
    return shared ? shared_intermediate : intermediate;
  }
  // Tiles along N of one row block (of one wgrad: along N of the weight).
  CATAMOUNT_HD std::int32_t n_tiles(Stage stage, bool shared) const {
    std::int64_t columns = 0;
    switch (stage) {
      case Stage::gate_up:
      case Stage::down_dgrad:
      case Stage::down_wgrad:
        columns = width(shared);
        break;
      case Stage::down:
      case Stage::gate_up_dgrad:
      case Stage::gate_up_wgrad:
        columns = hidden;
        break;
      default:
        return 1;
    }
    return static_cast<std::int32_t>(ceil_div(columns, tile(stage).n));
  }
  // Tiles along M of a wgrad. gate and up are cut apart, so that no tile holds rows of both.
  CATAMOUNT_HD std::int32_t m_tiles(Stage stage, bool shared) const {
    if (stage == Stage::down_wgrad) {
      return static_cast<std::int32_t>(ceil_div(hidden, tile(stage).m));
    }
    if (stage == Stage::gate_up_wgrad) {
      return 2 * static_cast<std::int32_t>(ceil_div(width(shared), tile(stage).m));
    }
    return 1;
  }
  CATAMOUNT_HD std::int32_t parts_per_block() const {
    return static_cast<std::int32_t>(ceil_div(kBlockRows, rows_per_move));
  }
  CATAMOUNT_HD static bool is_move(Stage stage) {
    return stage == Stage::dispatch || stage == Stage::combine_grad || stage == Stage::send_home;
  }
  CATAMOUNT_HD static bool is_wgrad(Stage stage) {
    return stage == Stage::down_wgrad || stage == Stage::gate_up_wgrad;
  }
  // Tasks that advance the counter of one unit (a row block, or a piece for the wgrads).
  CATAMOUNT_HD std::int32_t tasks_per_unit(Stage stage, bool shared) const {
    return is_move(stage) ? parts_per_block() : n_tiles(stage, shared) * m_tiles(stage, shared);
  }
};

// Consecutive row blocks of one expert in one window. The shared expert is expert
// num_local_experts; its row blocks are this rank's own tokens, numbered apart from the routed
// ones.
struct Run {
  std::int32_t expert;
  std::int32_t block;
  std::int32_t num_blocks;
  std::int32_t piece;
  bool ends_piece;
};

// The rows of one expert in one window: what one wgrad pass sums over.
struct Piece {
  std::int32_t expert;
  std::int32_t block;
  std::int32_t num_blocks;
  bool first;               // overwrites or adds to the caller's gradient only in the last piece;
  bool last;                // before that, sums collect in `scratch`
  std::int32_t scratch;     // 0 or 1; -1: one piece is all
  std::int32_t wait_piece;  // piece whose wgrads must be done first; -1: none
};

// Tasks of one stage over one run or piece, numbered m fastest, then n: neighbours share operands.
struct Segment {
  Stage stage;
  bool shared;
  std::int32_t expert;
  std::int32_t block;
  std::int32_t num_blocks;
  std::int32_t piece;
  std::int64_t first_task;  // index in its queue of the segment's first task
};

struct Task {
  Stage stage;
  bool shared;
  std::int32_t expert;
  std::int32_t block;  // row block; for wgrads the piece's first
  std::int32_t piece;
  std::int32_t m;  // wgrads: tile along M
  std::int32_t n;  // tile along N; moves: part of the block; sums: chunk of tokens
};

// Satisfied when the counters of all units in [begin, end) have all their tasks, or, for the
// barrier, when every rank has arrived.
struct Wait {
  Stage stage;
  bool shared;
  bool barrier;
  std::int32_t begin;
  std::int32_t end;
};
inline constexpr int kMaxWaits = 4;

// Where the tables lie; sizes from ScheduleConfig.
struct ScheduleTables {
  Run* runs;                      // [max_runs]
  Piece* pieces;                  // [max_pieces]
  std::int32_t* block_piece;      // [max_blocks] piece of each routed row block
  std::int32_t* window_run;       // [max_windows + 1] first run of each window
  Segment* segments[kNumQueues];  // [max_segments] each
};

class Schedule {
 public:
  ScheduleConfig config;
  ScheduleTables tables{};
  std::int64_t tokens = 0;
  std::int32_t num_blocks = 0;
  std::int32_t num_shared_blocks = 0;
  std::int32_t num_windows = 0;
  std::int32_t num_runs = 0;
  std::int32_t num_pieces = 0;
  std::int32_t num_segments[kNumQueues] = {};
  std::int64_t num_tasks[kNumQueues] = {};
  std::int64_t finished_target = 0;

  // Rows of a rank do not fit its pools at once: slots are reused, and every row goes home.
  CATAMOUNT_HD bool macrobatched() const { return num_blocks > config.capacity_blocks; }
  CATAMOUNT_HD bool sends_home() const {
    return num_blocks > 0 && (config.ep_size > 1 || macrobatched());
  }
  // Backward finds the pre-activations of this row block in what forward kept.
  CATAMOUNT_HD bool kept(bool shared, std::int32_t block) const {
    return shared ? config.kept_shared : block < config.kept_blocks;
  }
  CATAMOUNT_HD std::int32_t slot(std::int32_t block) const {
    return block % config.capacity_blocks;
  }
  CATAMOUNT_HD std::int32_t x_slot(std::int32_t block) const { return block % config.x_slots(); }
  CATAMOUNT_HD Stage final_stage() const {
    return config.backward ? Stage::dispatch_grad : Stage::combine;
  }
  CATAMOUNT_HD std::int32_t unit(bool shared, std::int32_t block) const {
    return shared ? config.max_blocks + block : block;
  }
  CATAMOUNT_HD std::int32_t counter(Stage stage, std::int32_t unit_idx) const {
    return static_cast<std::int32_t>(stage) * config.max_units() + unit_idx;
  }

  // Task `index` of a queue. `hint`: the segment of an earlier index, or 0; updated.
  CATAMOUNT_HD Task task(Queue queue, std::int64_t index, std::int32_t* hint) const;
  // Fills `out` with what the task waits for; returns how many.
  CATAMOUNT_HD int waits(const Task& task, Wait out[kMaxWaits]) const;
  // The counter the finished task advances by one; -1: none (the final sums).
  CATAMOUNT_HD std::int32_t advances(const Task& task) const;
  // Whether the finished task also advances finished_counter().
  CATAMOUNT_HD bool counts_as_finished(Stage stage, bool shared) const;
};

// Builds the tables from the routing's row blocks ([E_local + 1], see routing.h).
CATAMOUNT_HD inline void build_schedule(const ScheduleConfig& config, std::int64_t tokens,
                                        const std::int32_t* block_begin,
                                        const ScheduleTables& tables, Schedule* out);

}  // namespace catamount

#include "core/schedule_build.h"
#include "core/schedule_walk.h"
