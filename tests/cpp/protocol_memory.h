// The symbolic memory of the protocol checker. A cell is as large as what one task writes at once
// (a part of a row block that moves, a tile, a chunk of sums) and holds the tag of the task that
// wrote it. A task that reads a datum knows which task must have written it, so that a cell that is
// stale, torn or overwritten is seen.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "protocol_case.h"

namespace catamount::test {

enum class Data : std::uint8_t {
  x,
  h,
  y,
  pre_activations,
  kept_pre_activations,
  kept_x,  // forward and recompute
  dy,
  d_gate_up,
  h_weighted,
  router_grad,
  dx,  // backward
  scratch,
  grad,
  out
};

// Data of a kind: of the shared expert or not, then block (a datum) or slot (where it lies), then
// part or tile. Outputs have the pass behind it: they are never overwritten.
using Place = std::tuple<Data, bool, std::int32_t, std::int32_t, std::int32_t>;

class ProtocolMemory {
 public:
  ProtocolMemory(int passes, int ranks) : ranks_(ranks) {
    data_.resize(static_cast<std::size_t>(passes * ranks));
    for (int i = 0; i < passes * ranks; ++i) publish_tags_.push_back(new_tag());
    for (int r = 0; r < ranks; ++r) new_cell();
  }

  Tag new_tag() { return ++num_tags_; }
  int num_cells() const { return num_cells_; }
  // One rank's published inputs are one cell.
  int published_cell(int r) const { return r; }
  Tag publish_tag(int pass, int r) const { return publish_tags_[index(pass, r)]; }
  int cell(int rank, const Place& place) {
    const auto [it, added] = cells_.try_emplace({rank, place}, num_cells_);
    if (added) ++num_cells_;
    return it->second;
  }

  // `datum` names it within its pass and rank, `place` where it lies.
  void write(int pass, int rank, ModelTask& task, const Place& datum, const Place& place) {
    set_writer(pass, rank, task.tag, datum);
    task.writes.push_back(cell(rank, place));
  }
  // A sum is written over the one before by reading that; it is a datum of its own.
  void set_writer(int pass, int rank, Tag tag, const Place& datum) {
    const auto [it, added] = data_[index(pass, rank)].emplace(datum, tag);
    if (!added && it->second != tag) throw std::logic_error("a datum is written twice");
  }
  // Writers may come later than readers: see resolve().
  void read(int pass, int rank, const ModelTask& task, const Place& datum, const Place& place,
            bool update = false) {
    reads_.push_back({pass, rank, task.tag, update, datum, place});
  }
  // Slot (token, k) at home: written by one rank, read by the one it belongs to.
  void access_home(int pass, int home_rank, std::int64_t slot, const ModelTask& task, bool writes) {
    home_[{home_rank, slot}].emplace_back(pass, task.tag, writes);
  }

  // Gives every reader its cells, and the tags they must hold, once all tasks are known.
  template <class TaskOf>
  void resolve(const TaskOf& task_of) {
    for (const Read& r : reads_) {
      const auto& data = data_[index(r.pass, r.rank)];
      const auto it = data.find(r.datum);
      // Tag 0 is no task's: reading what nobody writes is an error of whoever does.
      const Access access{cell(r.rank, r.place), it == data.end() ? Tag{0} : it->second};
      ModelTask& task = task_of(r.reader);
      (r.update ? task.updates : task.reads).push_back(access);
    }
    resolve_home(task_of);
  }

 private:
  struct Read {
    int pass, rank;
    Tag reader;
    bool update;
    Place datum, place;
  };
  using HomeAccess = std::tuple<int, Tag, bool>;  // pass, task, whether it writes

  std::size_t index(int pass, int r) const { return static_cast<std::size_t>(pass * ranks_ + r); }
  int new_cell() { return num_cells_++; }

  // Slots that the same tasks of all passes write and read are one cell.
  template <class TaskOf>
  void resolve_home(const TaskOf& task_of) {
    std::map<std::pair<int, std::vector<HomeAccess>>, int> classes;
    for (const auto& [slot, accesses] : home_) classes.try_emplace({slot.first, accesses}, 0);
    for (auto& [key, cell_idx] : classes) {
      cell_idx = new_cell();
      std::map<int, Tag> writers;
      for (const auto& [pass, tag, writes] : key.second) {
        if (!writes) continue;
        if (!writers.emplace(pass, tag).second) throw std::logic_error("a slot is written twice");
        task_of(tag).writes.push_back(cell_idx);
      }
      for (const auto& [pass, tag, writes] : key.second) {
        if (!writes) task_of(tag).reads.push_back({cell_idx, writers[pass]});
      }
    }
  }

  int ranks_;
  Tag num_tags_ = 0;
  int num_cells_ = 0;
  std::vector<Tag> publish_tags_;
  std::vector<std::map<Place, Tag>> data_;  // who writes each datum, by pass and rank
  std::map<std::pair<int, Place>, int> cells_;
  std::vector<Read> reads_;
  std::map<std::pair<int, std::int64_t>, std::vector<HomeAccess>> home_;
};

}  // namespace catamount::test
