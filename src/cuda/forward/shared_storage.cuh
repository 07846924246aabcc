// Shared memory of one CTA of the forward kernel, and the constants that shape it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/schedule.h"
#include "cuda/forward/boxes.h"

namespace catamount::cuda {

inline constexpr int kStages = 4;     // of the operand ring
inline constexpr int kMailSlots = 3;  // stored, multiplied, next
inline constexpr int kCluster = 2;    // CTAs that share B tiles
inline constexpr int kClaimSlots = 2;
inline constexpr int kConsumers = 2;       // warpgroups
inline constexpr int kSegmentWindow = 16;  // segments that the scheduler keeps at hand
inline constexpr int kMoveSlots = 4;       // copies that a mover has in flight
inline constexpr std::uint32_t kMoveSlotBytes = 4096;
inline constexpr int kWarpgroup = 128;

inline constexpr int kBytesA = kTileRows * kBlockK * 2;
inline constexpr int kBytesB = kTileColumns * kBlockK * 2;
inline constexpr int kStagingBytes = kTileRows * kGateColumns * 2;

// A task as the warps of a CTA tell it each other.
struct Mail {
  Stage stage;
  bool stop;  // no task: the end
  bool shared;
  bool finishes;  // advances the finished counter
  bool kept_x;    // x rows lie in the saved buffer
  bool idle;      // only keeps the operand ring in step with the other CTA's
  bool paired;    // both CTAs of the cluster multiply by the same B
  bool keep;      // store pre-activations
  std::int32_t expert;
  std::int32_t block;
  std::int32_t n;
  std::int32_t row;         // first row in the pools
  std::int32_t load_row;    // first row of its operand A
  std::int32_t valid_rows;  // of kTileRows
  std::int32_t k_blocks;
  std::uint32_t ring;  // position of its first K block in the operand ring
  std::int32_t counter;
};

struct SharedStorage {
  alignas(1024) std::byte a[kStages][kBytesA];
  alignas(1024) std::byte b[kStages][kBytesB];
  alignas(1024) std::byte staging[kConsumers][kStagingBytes];
  alignas(128) std::byte move_slots[kMoveSlots][kMoveSlotBytes];
  float bias[kConsumers][kTileColumns];
  Segment segments[kSegmentWindow];
  Schedule schedule;
  std::uint32_t targets[kNumStages][2];  // tasks that a unit's counter ends at, by (stage, shared)
  Mail mail[kMailSlots];
  std::int64_t claim[kClaimSlots];

  std::uint64_t full[kStages], empty[kStages];
  std::uint64_t mail_full[kMailSlots], mail_empty[kMailSlots];
  std::uint64_t staging_full[kConsumers], staging_empty[kConsumers];
  std::uint64_t turn[kConsumers];
  std::uint64_t claim_full[kClaimSlots], claim_empty[kClaimSlots];
  std::uint64_t move_full[kMoveSlots];
};

static_assert(sizeof(SharedStorage) <= 227 * 1024);

}  // namespace catamount::cuda
