// One pass on one rank of the CPU backend: where everything lies, and what each stage may ask.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "catamount/moe.h"
#include "catamount/peer_memory.h"
#include "core/layout.h"
#include "core/schedule.h"
#include "cpu/rows.h"
#include "cpu/weights.h"

namespace catamount::cpu {

// Tuning of the CPU's schedule: whole row blocks move at once, and a small lag shows the overlap.
inline constexpr ScheduleTuning kTuning{TileSet::cpu, 4, 16, 2, kBlockRows, 64};

// A view of the buffers of one pass. Pools hold row block b in slot b % capacity.
struct RankPass {
  MoeConfig config;
  PeerTable peers;
  HeapLayout layout;
  std::byte* heap = nullptr;  // this rank's
  std::uint64_t pass = 0;     // number of this pass: what barrier words count
  std::int64_t tokens = 0;

  // Own tensors.
  const std::byte* x_rows = nullptr;  // this rank's published rows
  const std::byte* dy_rows = nullptr;
  const std::int32_t* slot_row = nullptr;
  const float* topk_weights = nullptr;
  TensorView out;  // forward: out; backward: dx
  float* d_topk_weights = nullptr;

  RoutingTables routing{};
  Schedule schedule;
  WeightSet weights;
  GradSet grads;
  std::byte* saved = nullptr;  // nullptr: keep nothing
  SavedLayout saved_layout;

  std::vector<PublishedInputs> inputs;  // of every rank, read after the first barrier
  std::atomic<std::int64_t> bytes_pulled{0};
  std::atomic<std::int64_t> bytes_sent_home{0};

  explicit RankPass(const MoeConfig& c) : config(c), layout(c), saved_layout(c) {}

  int rank() const { return peers.rank; }
  HeapControl& control(int r) const { return *reinterpret_cast<HeapControl*>(peers.base[r]); }
  std::byte* at(const Region& region) const { return heap + region.offset; }
  template <class T>
  T* at(const Region& region) const {
    return reinterpret_cast<T*>(heap + region.offset);
  }

  bool is_shared(std::int32_t expert) const { return expert == config.num_local_experts(); }
  // Rows of a block that hold tokens; the rest is padding, which no stage touches.
  std::int64_t rows_in_block(bool shared, std::int32_t expert, std::int32_t block) const {
    const std::int64_t rows = shared ? tokens : routing.expert_rows[expert];
    const std::int64_t first =
        static_cast<std::int64_t>(shared ? block : block - routing.block_begin[expert]) *
        kBlockRows;
    return std::min<std::int64_t>(kBlockRows, rows - first);
  }
  // First pool row of a routed block; first token of a shared one.
  std::int64_t pool_row(bool shared, std::int32_t block) const {
    return static_cast<std::int64_t>(shared ? block : schedule.slot(block)) * kBlockRows;
  }
  static std::int64_t table_row(std::int32_t block) {
    return static_cast<std::int64_t>(block) * kBlockRows;
  }
  // Router weight of row i of a block; the shared expert has none.
  float row_weight(bool shared, std::int32_t block, std::int64_t i) const {
    return shared ? 1.0F : routing.row_weight[table_row(block) + i];
  }

  RowPool pool(const Region& region, const RowFormat& format) const {
    return {at(region), format, format.stride_bytes()};
  }
  RowFormat hidden_format() const { return hidden_row(config); }
  RowFormat inter_format(bool shared) const { return intermediate_row(config, shared); }
  static RowFormat bf16_row(std::int64_t cols) { return {Precision::bf16, cols}; }

  // x rows of a task: the shared expert reads the rank's own rows, backward may find them kept.
  RowPool x_pool(bool shared, std::int32_t block) const;
  bool keeps_x(std::int32_t block) const {
    return saved != nullptr && schedule.config.kept_x && schedule.kept(false, block);
  }
  // First row of a block in x_pool: forward's own pool is a ring.
  std::int64_t x_row(bool shared, std::int32_t block) const {
    if (shared || keeps_x(block)) return pool_row(shared, block);
    return static_cast<std::int64_t>(schedule.x_slot(block)) * kBlockRows;
  }
  // [rows, 2I] BF16: gate, then up. In forward where backward will look; data == nullptr: not kept.
  RowPool pre_activations(bool shared, std::int32_t block) const;
  RowPool dy_pool(bool shared) const;
};

}  // namespace catamount::cpu
