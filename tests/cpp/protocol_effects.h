// What a task of each stage reads and writes: the layer's data flow, as the protocol checker sees
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "core/routing.h"
#include "core/schedule.h"
#include "protocol_case.h"
#include "protocol_memory.h"

namespace catamount::test {

// Of one pass on one rank.
struct RankTables {
  const Schedule& schedule;
  const std::vector<RowSource>& rows;
  const std::vector<std::int32_t>& slot_row;
};

class TaskEffects {
 public:
  TaskEffects(ProtocolMemory& memory, const ProtocolCase& c, int pass, int rank,
              const RankTables& tables)
      : memory_(memory), case_(c), pass_(pass), rank_(rank), tables_(tables), s_(tables.schedule) {}

  void add(const Task& t, ModelTask& out) {
    out_ = &out;
    switch (t.stage) {
      case Stage::dispatch:
      case Stage::combine_grad:
        return move_in(t);
      case Stage::gate_up:
        return gate_up(t);
      case Stage::down:
        read_tiles(Data::h, t, t.block, Stage::gate_up);
        return write_block(Data::y, t);
      case Stage::down_dgrad:
        return down_dgrad(t);
      case Stage::gate_up_dgrad:
        read_tiles(Data::d_gate_up, t, t.block, Stage::down_dgrad);
        return write_block(Data::dx, t);
      case Stage::send_home:
        return send_home(t);
      case Stage::down_wgrad:
      case Stage::gate_up_wgrad:
        return wgrad(t);
      default:
        return sums(t);
    }
  }

 private:
  std::int32_t place_of(bool shared, std::int32_t block) const {
    return shared ? block : s_.slot(block);
  }
  std::int32_t place_of(Data data, bool shared, std::int32_t block) const {
    return data == Data::x && !shared ? s_.x_slot(block) : place_of(shared, block);
  }
  void write_block(Data data, const Task& t) {
    memory_.write(pass_, rank_, *out_, {data, t.shared, t.block, t.n, 0},
                  {data, t.shared, place_of(data, t.shared, t.block), t.n, 0});
  }
  void read_block(Data data, bool shared, std::int32_t block, std::int32_t count) {
    for (std::int32_t i = 0; i < count; ++i) {
      memory_.read(pass_, rank_, *out_, {data, shared, block, i, 0},
                   {data, shared, place_of(data, shared, block), i, 0});
    }
  }
  void read_rows(Data data, std::int32_t block) {
    read_block(data, false, block, s_.config.parts_per_block());
  }
  void read_tiles(Data data, const Task& t, std::int32_t block, Stage writer) {
    read_block(data, t.shared, block, s_.config.n_tiles(writer, t.shared));
  }
  // Kept data have no slots: each block has its place.
  void write_kept(Data data, const Task& t) {
    const Place place{data, t.shared, t.block, t.n, 0};
    memory_.write(pass_, rank_, *out_, place, place);
  }
  // Only where the pass before is the forward that has kept them; else they come from outside.
  void read_kept(Data data, bool shared, std::int32_t block, std::int32_t n) {
    if (pass_ == 0 || case_.passes[static_cast<std::size_t>(pass_) - 1].backward) return;
    const Place place{data, shared, block, n, 0};
    memory_.read(pass_ - 1, rank_, *out_, place, place);
  }
  void read_published(int from) {
    out_->reads.push_back({memory_.published_cell(from), memory_.publish_tag(pass_, from)});
    out_->touches_peers = out_->touches_peers || from != rank_;
  }

  // Rows of a part of a row block, without padding.
  std::vector<RowSource> part_rows(const Task& t) const {
    std::vector<RowSource> rows;
    const std::int32_t step = s_.config.rows_per_move;
    for (std::int32_t i = t.n * step; i < std::min(kBlockRows, (t.n + 1) * step); ++i) {
      const RowSource& row = tables_.rows[static_cast<std::size_t>(t.block * kBlockRows + i)];
      if (row.rank >= 0) rows.push_back(row);
    }
    return rows;
  }

  void move_in(const Task& t) {
    std::set<int> from;
    for (const RowSource& row : part_rows(t)) from.insert(row.rank);
    for (const int s : from) read_published(s);
    write_block(t.stage == Stage::dispatch ? Data::x : Data::dy, t);
    if (!s_.config.backward && s_.config.kept_x && s_.kept(false, t.block)) {
      write_kept(Data::kept_x, t);
    }
  }
  void read_x(bool shared, std::int32_t block) {
    if (shared) {
      read_published(rank_);
    } else if (s_.config.backward && s_.config.kept_x && s_.kept(false, block)) {
      for (std::int32_t n = 0; n < s_.config.parts_per_block(); ++n) {
        read_kept(Data::kept_x, false, block, n);
      }
    } else {
      read_rows(Data::x, block);
    }
  }
  void read_dy(bool shared, std::int32_t block) {
    if (shared) {
      read_published(rank_);
    } else {
      read_rows(Data::dy, block);
    }
  }

  void gate_up(const Task& t) {
    read_x(t.shared, t.block);
    write_block(s_.config.backward ? Data::pre_activations : Data::h, t);
    if (!s_.config.backward && s_.kept(t.shared, t.block)) {
      write_kept(Data::kept_pre_activations, t);
    }
  }
  void down_dgrad(const Task& t) {
    read_dy(t.shared, t.block);
    // Its own columns of gate and up.
    if (s_.kept(t.shared, t.block)) {
      read_kept(Data::kept_pre_activations, t.shared, t.block, t.n);
    } else {
      memory_.read(pass_, rank_, *out_, {Data::pre_activations, t.shared, t.block, t.n, 0},
                   {Data::pre_activations, t.shared, place_of(t.shared, t.block), t.n, 0});
    }
    write_block(Data::d_gate_up, t);
    write_block(Data::h_weighted, t);
    if (!t.shared) write_block(Data::router_grad, t);
  }

  Data final_rows() const { return s_.config.backward ? Data::dx : Data::y; }
  // Rows of a block that are ready to be summed, and in backward their router gradients.
  void read_final_rows(bool shared, std::int32_t block) {
    const Stage writer = s_.config.backward ? Stage::gate_up_dgrad : Stage::down;
    read_block(final_rows(), shared, block, s_.config.n_tiles(writer, shared));
    if (s_.config.backward && !shared) {
      read_block(Data::router_grad, false, block, s_.config.n_tiles(Stage::down_dgrad, false));
    }
  }
  void send_home(const Task& t) {
    read_final_rows(false, t.block);
    for (const RowSource& row : part_rows(t)) {
      if (row.rank == rank_ && !s_.macrobatched()) continue;
      memory_.access_home(pass_, row.rank, row.token * case_.topk + row.slot, *out_, true);
      out_->touches_peers = out_->touches_peers || row.rank != rank_;
    }
  }
  void sums(const Task& t) {
    const std::int64_t begin = std::int64_t{t.n} * s_.config.tokens_per_sum;
    const std::int64_t end = std::min(s_.tokens, begin + s_.config.tokens_per_sum);
    std::set<std::int32_t> blocks;  // summed in place
    for (std::int64_t slot = begin * case_.topk; slot < end * case_.topk; ++slot) {
      const std::int32_t row = tables_.slot_row[static_cast<std::size_t>(slot)];
      if (row == kMaskedSlot) continue;
      if (row == kRemoteSlot || s_.macrobatched()) {
        memory_.access_home(pass_, rank_, slot, *out_, false);
      } else {
        blocks.insert(row / kBlockRows);
      }
    }
    for (const std::int32_t b : blocks) read_final_rows(false, b);
    if (s_.config.shared_intermediate > 0) {
      for (std::int64_t b = begin / kBlockRows; b * kBlockRows < end; ++b) {
        read_final_rows(true, static_cast<std::int32_t>(b));
      }
    }
    read_published(rank_);  // its own router weights
    const Place out{Data::out, false, t.n, 0, pass_};
    memory_.write(pass_, rank_, *out_, out, out);
  }

  void wgrad(const Task& t) {
    const Piece& piece = s_.tables.pieces[t.piece];
    const bool down = t.stage == Stage::down_wgrad;
    for (std::int32_t b = piece.block; b < piece.block + piece.num_blocks; ++b) {
      read_tiles(down ? Data::h_weighted : Data::d_gate_up, t, b, Stage::down_dgrad);
      if (down) {
        read_dy(t.shared, b);
      } else {
        read_x(t.shared, b);
      }
    }
    // Sums between pieces: a datum for each piece, all in the same scratch.
    const std::int32_t tile = wgrad_tile(t.m, t.n);
    const Place scratch{Data::scratch, down, piece.scratch, tile, 0};
    if (!piece.first) {
      memory_.read(pass_, rank_, *out_, {Data::scratch, down, t.piece - 1, tile, 0}, scratch,
                   !piece.last);
    }
    if (piece.last) {
      const Place grad{Data::grad, down, t.expert, tile, pass_};
      memory_.write(pass_, rank_, *out_, grad, grad);
    } else if (piece.first) {
      memory_.write(pass_, rank_, *out_, {Data::scratch, down, t.piece, tile, 0}, scratch);
    } else {
      memory_.set_writer(pass_, rank_, out_->tag, {Data::scratch, down, t.piece, tile, 0});
    }
  }

 public:
  static std::int32_t wgrad_tile(std::int32_t m, std::int32_t n) { return m * 1000 + n; }

 private:
  ProtocolMemory& memory_;
  const ProtocolCase& case_;
  int pass_;
  int rank_;
  RankTables tables_;
  const Schedule& s_;
  ModelTask* out_ = nullptr;
};

}  // namespace catamount::test
