// The storer: one lane that stores staged results, waits until they are written, and only then
// advances counters. Consumers wait just until staging has been read.
#pragma once

#include "cuda/device/mailbox.cuh"
#include "cuda/device/wait.cuh"
#include "cuda/ptx/tma.cuh"

namespace catamount::cuda {

class Storer {
 public:
  __device__ Storer(const ForwardParams& p, SharedStorage& s) : p_(p), s_(s) {}

  __device__ void run() {
    for (std::uint32_t i = 0;; ++i) {
      const Mail& mail = receive(s_, i);
      if (mail.stop) return;
      if (mail.stage != Stage::combine && !mail.idle) {
        store(mail, static_cast<int>(i % kConsumers));
        ptx::cp_async_bulk_wait_group<0>();
        complete_task(p_, s_.schedule, mail.counter, mail.finishes);
      }
      release(s_, i);
    }
  }

 private:
  __device__ void store(const Mail& mail, int consumer) {
    const ExpertMaps& maps = mail.shared ? p_.shared : p_.routed;
    if (mail.stage == Stage::gate_up) {
      const std::int32_t column = mail.n * kGateColumns;
      const std::int32_t width =
          static_cast<std::int32_t>(mail.shared ? p_.shared_intermediate : p_.intermediate);
      for (int plane = 0; mail.keep && plane < 2; ++plane) {
        const std::byte* staged = begin(consumer);
        for (int box = 0; box < kGateColumns / kBoxColumnsH; ++box) {
          const std::int32_t x = column + box * kBoxColumnsH;
          if (x < width) {
            ptx::cp_async_bulk_tensor_store_3d(&maps.pre_activations, x, plane, mail.row,
                                               staged + box * kBoxBytes);
          }
        }
        end(consumer);
      }
      const std::byte* staged = begin(consumer);
      for (int box = 0; box < kGateColumns / kBoxColumnsH; ++box) {
        const std::int32_t x = column + box * kBoxColumnsH;
        if (x < width) {
          ptx::cp_async_bulk_tensor_store_2d(&maps.h_store, x, mail.row, staged + box * kBoxBytes);
        }
      }
      end(consumer);
      return;
    }
    for (int half = 0; half * kHalfRows < mail.valid_rows; ++half) {
      const std::byte* staged = begin(consumer);
      for (int box = 0; box < kTileColumns / kBoxColumnsY; ++box) {
        const std::int32_t x = mail.n * kTileColumns + box * kBoxColumnsY;
        if (x < p_.hidden) {
          ptx::cp_async_bulk_tensor_store_2d(&maps.y, x, mail.row + half * kHalfRows,
                                             staged + box * kBoxBytes, passing_);
        }
      }
      end(consumer);
    }
  }

  __device__ const std::byte* begin(int consumer) {
    wait_parity(&s_.staging_full[consumer], rounds_[consumer] & 1);
    return s_.staging[consumer];
  }
  __device__ void end(int consumer) {
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read<0>();
    ptx::mbarrier_arrive(&s_.staging_empty[consumer]);
    rounds_[consumer] ^= 1;
  }

  const ForwardParams& p_;
  SharedStorage& s_;
  std::uint32_t rounds_[kConsumers] = {};
  std::uint64_t passing_ = ptx::evict_first_policy();
};

}  // namespace catamount::cuda
