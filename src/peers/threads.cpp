// PeerMemory whose ranks are threads of this process: every heap is plain memory of the process.
#include <cstring>
#include <numeric>

#include "catamount/peer_memory.h"
#include "core/layout.h"
#include "core/validate.h"

namespace catamount {
namespace {

constexpr std::size_t kHeapAlign = 256;

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kHeapAlign}); }
};
using Heap = std::unique_ptr<std::byte[], AlignedDelete>;

struct Heaps {
  std::size_t bytes;
  std::vector<Heap> heap;

  Heaps(int ep_size, std::size_t heap_bytes) : bytes(heap_bytes) {
    validate_heaps(ep_size, heap_bytes);
    for (int r = 0; r < ep_size; ++r) {
      heap.emplace_back(
          static_cast<std::byte*>(::operator new[](heap_bytes, std::align_val_t{kHeapAlign})));
    }
    clear_control();
  }

  void clear_control() {
    for (Heap& h : heap) std::memset(h.get(), 0, sizeof(HeapControl));
  }
};

class ThreadPeers : public PeerMemory {
 public:
  ThreadPeers(std::shared_ptr<Heaps> heaps, std::vector<int> ranks)
      : heaps_(std::move(heaps)), ranks_(std::move(ranks)) {}

  Backend backend() const override { return Backend::cpu; }
  int ep_size() const override { return static_cast<int>(heaps_->heap.size()); }
  std::size_t heap_bytes() const override { return heaps_->bytes; }
  std::span<const int> local_ranks() const override { return ranks_; }
  PeerTable table(int rank) const override {
    PeerTable table;
    table.rank = rank;
    table.ep_size = ep_size();
    for (int r = 0; r < ep_size(); ++r)
      table.base[r] = heaps_->heap[static_cast<std::size_t>(r)].get();
    return table;
  }
  void reset() override { heaps_->clear_control(); }

 private:
  std::shared_ptr<Heaps> heaps_;
  std::vector<int> ranks_;
};

}  // namespace

std::unique_ptr<PeerMemory> make_thread_peers(int ep_size, std::size_t heap_bytes) {
  auto heaps = std::make_shared<Heaps>(ep_size, heap_bytes);
  std::vector<int> ranks(static_cast<std::size_t>(ep_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<ThreadPeers>(std::move(heaps), std::move(ranks));
}

std::vector<std::unique_ptr<PeerMemory>> make_thread_peer_handles(int ep_size,
                                                                  std::size_t heap_bytes) {
  auto heaps = std::make_shared<Heaps>(ep_size, heap_bytes);
  std::vector<std::unique_ptr<PeerMemory>> handles;
  handles.reserve(static_cast<std::size_t>(ep_size));
  for (int r = 0; r < ep_size; ++r) {
    handles.push_back(std::make_unique<ThreadPeers>(heaps, std::vector<int>{r}));
  }
  return handles;
}

}  // namespace catamount
