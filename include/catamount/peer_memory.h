// Memory that the ranks of an expert-parallel group can read in each other: the same layout on
// every rank, so that a peer's address is the peer's base + offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace catamount {

inline constexpr int kMaxRanks = 64;

// What kernels see: plain data, passed by value.
struct PeerTable {
  int rank = 0;
  int ep_size = 1;
  std::byte* base[kMaxRanks] = {};  // base[r]: rank r's heap, as this rank addresses it
};

enum class Backend : std::uint8_t { cpu, cuda };

class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  virtual Backend backend() const = 0;
  virtual int ep_size() const = 0;
  virtual std::size_t heap_bytes() const = 0;
  // The ranks this caller drives: all of them when ranks are threads or GPUs of one process.
  virtual std::span<const int> local_ranks() const = 0;
  // The table of a local rank.
  virtual PeerTable table(int rank) const = 0;
  // Makes the group usable again after a pass in which some rank never called (Error(timeout)). No
  // rank may be inside a pass. Not needed after other errors.
  virtual void reset() = 0;

 protected:
  PeerMemory() = default;
};

// Ranks are threads of this process (CPU backend). `heap_bytes` per rank, see
// heap_bytes(MoeConfig). One object drives all ranks: each pass runs them in threads of its own.
std::unique_ptr<PeerMemory> make_thread_peers(int ep_size, std::size_t heap_bytes);

// The same, but the caller brings the threads: handle r drives rank r alone, and each rank's thread
// calls the pass with its own handle. The handles share the memory.
std::vector<std::unique_ptr<PeerMemory>> make_thread_peer_handles(int ep_size,
                                                                  std::size_t heap_bytes);

// CUDA. All of these need a build with CUDA and Hopper GPUs: Error(not_available) otherwise. Every
// tensor of a pass is device memory; BF16 tensors and `saved` are aligned to 16 bytes.

// `ep_size` ranks (at most 8) on one GPU, each with a heap of its own and an equal part of the SMs;
// the caller drives them all. The kernels are the same as on as many GPUs.
std::unique_ptr<PeerMemory> make_virtual_peers(int ep_size, std::size_t heap_bytes, int device = 0);

// Rank r is GPU devices[r]; one process drives them all. Enables peer access between them, and
// raises Error(not_available) where it is not possible. The caller's streams are the first GPU's: a
// pass forks to streams of the others, and joins them.
std::unique_ptr<PeerMemory> make_device_peers(std::span<const int> devices, std::size_t heap_bytes);

// Heaps made by somebody else (symmetric memory): bases[r] is rank r's heap as this process
// addresses it, aligned to 256 bytes. Drives `rank` alone, on the GPU that owns bases[rank], whose
// control words are zeroed: every rank must have been here before the first one starts a pass.
// Peers see nothing of this rank but its heap: tensors outside of it (x, topk_idx, topk_weights)
// are copied into it by each pass.
std::unique_ptr<PeerMemory> make_adopted_peers(int rank, std::span<void* const> bases,
                                               std::size_t heap_bytes);

}  // namespace catamount
