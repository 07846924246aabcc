// Every region of a rank's heap and of its saved buffer, once: offset and size in bytes.
//
//   heap: control | counters | schedule tables | routing tables | x_fp8 dy_fp8 | home | shared |
//   pools
//         the pools of forward and of backward overlap: only one pass runs at a time
//   saved: header | routing tables | pre-activations | x rows | shared pre-activations
#pragma once

#include <cstddef>
#include <cstdint>

#include "catamount/peer_memory.h"
#include "core/routing.h"
#include "core/shape.h"

namespace catamount {

struct Region {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

class RegionBuilder {
 public:
  explicit RegionBuilder(std::size_t begin = 0) : end_(begin) {}
  // `when` false: the region does not exist in this configuration.
  Region add(std::int64_t count, std::int64_t element_bytes, bool when = true) {
    const std::size_t bytes = when ? static_cast<std::size_t>(count * element_bytes) : 0;
    const Region region{end_, bytes};
    end_ += (bytes + kAlign - 1) / kAlign * kAlign;
    return region;
  }
  std::size_t end() const { return end_; }

 private:
  static constexpr std::size_t kAlign = 256;
  std::size_t end_;
};

// What a rank tells its peers before the first barrier. Offsets from the rank's heap base: the
// tensors may lie outside of the heap where ranks share an address space.
struct PublishedInputs {
  std::int64_t tokens;
  std::int64_t x_offset;  // rows of hidden_row(config), `x_stride` bytes apart
  std::int64_t x_stride;
  std::int64_t dy_offset;
  std::int64_t dy_stride;
  std::int64_t topk_idx_offset;
  std::int64_t topk_weights_offset;
  std::int32_t topk_idx_is_64bit;
};

// The head of every heap. Barrier words count passes: word [b][r] is written by rank r alone.
enum class Barrier : int { first, last };
struct HeapControl {
  PublishedInputs inputs;
  std::uint64_t arrived[2][kMaxRanks];
  std::uint64_t failed[kMaxRanks];  // pass in which rank r gave up
};

struct RoutingRegions {
  Region expert_rows, block_begin, row_source, row_weight, slot_row;

  RoutingRegions() = default;
  RoutingRegions(const MoeConfig& config, RegionBuilder& builder) {
    const std::int64_t rows = max_blocks(config) * kBlockRows;
    expert_rows = builder.add(config.num_local_experts(), sizeof(std::int64_t));
    block_begin = builder.add(config.num_local_experts() + 1, sizeof(std::int32_t));
    row_source = builder.add(rows, sizeof(RowSource));
    row_weight = builder.add(rows, sizeof(float));
    slot_row = builder.add(config.max_tokens * config.topk, sizeof(std::int32_t));
  }

  RoutingTables tables(std::byte* base) const {
    return {reinterpret_cast<std::int64_t*>(base + expert_rows.offset),
            reinterpret_cast<std::int32_t*>(base + block_begin.offset),
            reinterpret_cast<RowSource*>(base + row_source.offset),
            reinterpret_cast<float*>(base + row_weight.offset),
            reinterpret_cast<std::int32_t*>(base + slot_row.offset)};
  }
};

// Floats of one expert's gradients, while its rows straddle macrobatches.
struct ScratchGrads {
  std::int64_t gate_up, down, bias_gate_up, bias_down;

  explicit ScratchGrads(const MoeConfig& config)
      : gate_up(2 * config.intermediate * config.hidden),
        down(config.hidden * config.intermediate),
        bias_gate_up(2 * config.intermediate),
        bias_down(config.hidden) {}
  std::int64_t floats() const { return gate_up + down + bias_gate_up + bias_down; }
};

struct HeapLayout {
  Region control, counters, runs, pieces, block_piece, window_run, segments[kNumQueues];
  Region next_row, chunk_counts;  // routing's scratch
  RoutingRegions routing;
  // What a rank publishes, where the caller's tensors will not do: rows that are quantized, and
  // copies for peers that see nothing of this rank but its heap.
  Region x_quantized, dy_quantized, published_idx, published_weights;
  Region home_rows, home_weight_grads;  // [T, topk, H] BF16; [T, topk] F32
  // Pools: one row per (slot, row of block); x a ring of its own size.
  Region x, h, y;                                                                // forward
  Region dy, x_again, pre_activations, d_gate_up, h_weighted, dx, weight_grads;  // backward
  Region shared_h, shared_y;
  Region shared_pre_activations, shared_d_gate_up, shared_h_again, shared_dx;
  Region scratch_grads;  // two experts' worth
  std::size_t bytes = 0;

  explicit HeapLayout(const MoeConfig& config) {
    const ScheduleConfig schedule =
        schedule_config(config, true, {TileSet::sm90_bf16, 1, 0, 0, 1, 1});
    const bool quantized = config.precision != Precision::bf16;
    const bool shared = config.shared_intermediate > 0;
    const bool may_macrobatch = capacity_blocks(config) < max_blocks(config);
    const std::int64_t tokens = config.max_tokens;
    const std::int64_t rows = capacity_blocks(config) * kBlockRows;
    const std::int64_t hidden_bytes = hidden_row(config).stride_bytes();
    const std::int64_t inter_bytes = intermediate_row(config, false).stride_bytes();
    const std::int64_t shared_bytes = intermediate_row(config, true).stride_bytes();
    constexpr std::int64_t kBf16 = 2;

    RegionBuilder b;
    control = b.add(1, sizeof(HeapControl));
    counters = b.add(schedule.num_counters(), sizeof(std::uint32_t));
    // group_blocks 1 above: the most runs any tuning can make.
    runs = b.add(schedule.max_runs(), sizeof(Run));
    pieces = b.add(schedule.max_pieces(), sizeof(Piece));
    block_piece = b.add(schedule.max_blocks, sizeof(std::int32_t));
    window_run = b.add(schedule.max_windows() + 1, sizeof(std::int32_t));
    for (Region& queue : segments) queue = b.add(schedule.max_segments(), sizeof(Segment));
    next_row = b.add(config.num_local_experts(), sizeof(std::int64_t));
    chunk_counts =
        b.add(kMaxRoutingChunks * round_up(config.num_local_experts(), 4), sizeof(std::uint32_t));
    routing = RoutingRegions(config, b);
    const bool peers = config.ep_size > 1;
    x_quantized = b.add(tokens, hidden_bytes, quantized || peers);
    dy_quantized = b.add(tokens, hidden_bytes, quantized || peers);
    published_idx = b.add(tokens * config.topk, sizeof(std::int64_t), peers);
    published_weights = b.add(tokens * config.topk, sizeof(float), peers);
    home_rows = b.add(tokens * config.topk, kBf16 * config.hidden, may_send_home(config));
    home_weight_grads = b.add(tokens * config.topk, sizeof(float), may_send_home(config));

    RegionBuilder forward(b.end());
    x = forward.add(x_blocks(config) * kBlockRows, hidden_bytes);
    h = forward.add(rows, inter_bytes);
    y = forward.add(rows, kBf16 * config.hidden);
    shared_h = forward.add(tokens, shared_bytes, shared);
    shared_y = forward.add(tokens, kBf16 * config.hidden, shared);

    RegionBuilder backward(b.end());
    dy = backward.add(rows, hidden_bytes);
    x_again = backward.add(rows, hidden_bytes);
    pre_activations = backward.add(rows, 2 * kBf16 * config.intermediate,
                                   may_macrobatch || config.keep == Keep::routing);
    d_gate_up = backward.add(rows, 2 * inter_bytes);
    h_weighted = backward.add(rows, inter_bytes);
    dx = backward.add(rows, kBf16 * config.hidden);
    weight_grads = backward.add(rows * schedule.n_tiles(Stage::down_dgrad, false), sizeof(float));
    shared_pre_activations = backward.add(tokens, 2 * kBf16 * config.shared_intermediate,
                                          shared && config.keep == Keep::routing);
    shared_d_gate_up = backward.add(tokens, 2 * shared_bytes, shared);
    shared_h_again = backward.add(tokens, shared_bytes, shared);
    shared_dx = backward.add(tokens, kBf16 * config.hidden, shared);
    scratch_grads = backward.add(2 * ScratchGrads(config).floats(), sizeof(float), may_macrobatch);
    bytes = forward.end() > backward.end() ? forward.end() : backward.end();
  }
};

struct SavedHeader {
  std::uint64_t magic;        // kSavedMagic
  std::uint64_t fingerprint;  // of the configuration and this rank's T
};
inline constexpr std::uint64_t kSavedMagic = 0x63617461'6d6f756eULL;

struct SavedLayout {
  Region header;
  RoutingRegions routing;
  Region pre_activations;         // [capacity rows, 2I] BF16: gate, then up
  Region x;                       // [capacity rows] of hidden_row(config)
  Region shared_pre_activations;  // [T, 2 I_shared] BF16
  std::size_t bytes = 0;

  explicit SavedLayout(const MoeConfig& config) {
    const std::int64_t rows = capacity_blocks(config) * kBlockRows;
    const bool pre = config.keep != Keep::routing;
    constexpr std::int64_t kBf16 = 2;
    RegionBuilder b;
    header = b.add(1, sizeof(SavedHeader));
    routing = RoutingRegions(config, b);
    pre_activations = b.add(rows, 2 * kBf16 * config.intermediate, pre);
    x = b.add(rows, hidden_row(config).stride_bytes(), config.keep == Keep::pre_activations_and_x);
    shared_pre_activations = b.add(config.max_tokens, 2 * kBf16 * config.shared_intermediate, pre);
    bytes = b.end();
  }
};

}  // namespace catamount
