// The main loop of a consumer warpgroup: one 128 x 192 tile of A B^T, sums in registers.
//
// Row r of the tile belongs to half r / 64; inside a half wgmma's layout gives each thread, of
// every chunk of 8 columns, two neighbouring columns of two rows 8 apart:
//
//   acc[half][4 chunk + 2 i + j]   row  64 half + 16 warp + lane / 4 + 8 i
//                                  column  8 chunk + 2 (lane % 4) + j
#pragma once

#include "cuda/device/pipeline.cuh"
#include "cuda/forward/shared_storage.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace catamount::cuda {

inline constexpr int kSums = kTileColumns / 2;  // a thread's, of one half

// Where a thread stands in its warpgroup.
struct Thread {
  int consumer;
  int index;  // in the warpgroup
  int warp;
  int lane;
  __device__ int row(int half, int i) const { return 64 * half + 16 * warp + lane / 4 + 8 * i; }
  __device__ int column(int chunk) const { return 8 * chunk + 2 * (lane % 4); }
};

// Frees a stage for the loaders of both CTAs; by every consumer warp.
__device__ inline void free_stage(SharedStorage& s, std::uint32_t slot, int lane) {
  if (lane < kCluster) {
    ptx::mbarrier_arrive_cluster(ptx::mapa(&s.empty[slot], static_cast<std::uint32_t>(lane)));
  }
}

// The consumers of a CTA have the operand ring in turn.
class Turn {
 public:
  __device__ Turn(SharedStorage& s, const Thread& thread)
      : s_(s), thread_(thread), parity_(static_cast<std::uint32_t>(thread.consumer) ^ 1) {}

  // The ring's parities are unambiguous once the other consumer's last K block is in.
  __device__ void take() {
    wait_parity(&s_.turn[thread_.consumer], parity_);
    parity_ ^= 1;
  }
  __device__ void pass() {
    if (thread_.lane == 0) ptx::mbarrier_arrive(&s_.turn[1 - thread_.consumer]);
  }

 private:
  SharedStorage& s_;
  Thread thread_;
  std::uint32_t parity_;
};

// Takes the place of a tile where only the other CTA has one.
__device__ inline void skip_tile(SharedStorage& s, const Mail& mail, const Thread& thread,
                                 Turn& turn) {
  turn.take();
  RingPosition<kStages> at(mail.ring);
  for (std::int32_t k_block = 0; k_block < mail.k_blocks; ++k_block, at.advance()) {
    wait_parity(&s.full[at.slot], at.phase);
    free_stage(s, at.slot, thread.lane);
  }
  turn.pass();
}

// Where a tile's columns begin and end: all 192, or, at the right edge, kParts times the first
// kColumns of 192 / kParts. One part: down; two: gate's columns and up's.
template <int kParts, int kColumns>
struct Width {
  static constexpr std::uint32_t kNextPart = kTileColumns / kParts * 128 / 16;

  __device__ static void multiply(float (&acc)[kSums], std::uint64_t a, std::uint64_t b,
                                  std::uint32_t add) {
    part<0>(acc, a, b, add);
    if constexpr (kParts == 2) part<kSums / 2>(acc, a, b + kNextPart, add);
  }

 private:
  template <int kFirst>
  __device__ static void part(float (&acc)[kSums], std::uint64_t a, std::uint64_t b,
                              std::uint32_t add) {
    if constexpr (kColumns == 192) ptx::wgmma_m64n192k16<kFirst>(acc, a, b, add);
    if constexpr (kColumns == 128) ptx::wgmma_m64n128k16<kFirst>(acc, a, b, add);
    if constexpr (kColumns == 64) ptx::wgmma_m64n64k16<kFirst>(acc, a, b, add);
    if constexpr (kColumns == 32) ptx::wgmma_m64n32k16<kFirst>(acc, a, b, add);
  }
};
using FullWidth = Width<1, kTileColumns>;

// Adds the tile's products to the sums.
template <int kHalves, class Columns>
__device__ __forceinline__ void multiply(SharedStorage& s, const Mail& mail, const Thread& thread,
                                         Turn& turn, float (&acc0)[kSums], float (&acc1)[kSums]) {
  constexpr std::uint32_t kNextK = 32 / 16;
  constexpr std::uint32_t kNextHalf = 64 * 128 / 16;
  const std::uint64_t first_a = ptx::matrix_descriptor(s.a[0]);
  const std::uint64_t first_b = ptx::matrix_descriptor(s.b[0]);
  const std::int32_t k_blocks = mail.k_blocks;
  RingPosition<kStages> at(mail.ring);
  std::uint32_t before = 0;
  turn.take();
  for (std::int32_t k_block = 0; k_block < k_blocks; ++k_block) {
    wait_parity(&s.full[at.slot], at.phase);
    if (k_block + 1 == k_blocks) turn.pass();
    const std::uint64_t a = first_a + at.slot * (kBytesA / 16);
    const std::uint64_t b = first_b + at.slot * (kBytesB / 16);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kBlockK / 16; ++k) {
      Columns::multiply(acc0, a + k * kNextK, b + k * kNextK, 1);
      if constexpr (kHalves == 2) {
        Columns::multiply(acc1, a + kNextHalf + k * kNextK, b + k * kNextK, 1);
      }
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<1>();  // the K block before
    if (k_block > 0) free_stage(s, before, thread.lane);
    before = at.slot;
    at.advance();
  }
  ptx::wgmma_wait_group<0>();
  free_stage(s, before, thread.lane);
}

}  // namespace catamount::cuda
