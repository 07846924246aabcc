// The fused BF16 forward kernel, as the host sees it: what a rank must provide, and the launch.
//
// Before it, on the same stream, the routing kernel fills PassState, zeroes the counters, builds
// the routing tables and the schedule, and passes the first barrier. From there on this kernel
// does the whole pass (docs/forward_kernel.md).
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "catamount/moe.h"
#include "catamount/peer_memory.h"
#include "core/layout.h"
#include "core/routing.h"
#include "core/schedule.h"
#include "core/shape.h"
#include "cuda/device/pass_state.h"

namespace catamount::cuda {

// [E, cols] per expert; data == nullptr: absent. BF16 or FP32.
struct DeviceBias {
  const void* data = nullptr;
  std::int64_t expert_stride = 0;  // elements
  bool is_f32 = false;
};

// How the TMA unit sees the tensors of the routed experts, or of the shared one.
struct ExpertMaps {
  CUtensorMap x;                // loads of rows (shared: of the rank's own tokens)
  CUtensorMap x_kept;           // loads of rows that dispatch left in the saved buffer
  CUtensorMap gate, up, down;   // loads of weights: [plane][rows][cols]
  CUtensorMap h_load, h_store;  // down's operand, gate_up's result
  CUtensorMap y;                // stores
  CUtensorMap pre_activations;  // stores: [row][gate, up][I]
};

// Everything below comes from the host and is baked into a captured graph.
struct ForwardParams {
  ExpertMaps routed, shared;  // filled by make_forward_maps
  PeerTable peers;
  PassState* state;
  std::uint32_t* counters;  // HeapLayout::counters
  RoutingTables routing;    // in `saved` if there is one, else in the heap, as on the CPU

  std::int64_t hidden, intermediate, shared_intermediate;
  std::int64_t topk;
  std::int64_t tokens;  // T of this rank
  std::int64_t capacity_blocks;
  std::int64_t x_blocks;
  int num_local_experts;
  Swiglu swiglu;
  RouterWeight router_weight;
  std::uint64_t timeout_ns;

  const Bf16* x;              // [T, H] the rank's own rows
  const float* topk_weights;  // [T, topk]
  Bf16* out;                  // [T, H]

  // Weights. A fused tensor: fused_gate_up is set, gate is the tensor and up is not read.
  const Bf16 *gate, *up, *down;
  bool fused_gate_up;
  const Bf16 *shared_gate, *shared_up, *shared_down;
  bool shared_fused_gate_up;
  DeviceBias bias_gate, bias_up, bias_down;  // fused: data of up = data of gate + I elements

  // Pools of the heap.
  Bf16 *x_pool, *h_pool, *y_pool, *shared_h, *shared_y;
  std::int64_t home_rows_offset;  // HeapLayout::home_rows.offset

  // What backward will look for; nullptr: not kept.
  Bf16* kept_pre_activations;         // [capacity rows, 2I]
  Bf16* kept_shared_pre_activations;  // [T, 2 I_shared]
  Bf16* kept_x;                       // [capacity rows, H]
  SavedHeader* saved_header;          // becomes valid when everything in it has been written
  std::uint64_t saved_fingerprint;
};

// The choices of this kernel's schedule; rows_per_move <= 32.
ScheduleTuning forward_tuning(const MoeConfig& config);

// Encodes routed and shared from the other members. Not to be called on every replay: the maps
// travel with the parameters.
cudaError_t make_forward_maps(ForwardParams* params);

struct LaunchOptions {
  int num_sms = 0;      // of the device
  int reserve_sms = 0;  // left to other kernels
  int comm_sms = 0;     // SMs (of each rank) that only move rows; 0: every SM computes
};

// Ranks that one launch can drive: several where they share a GPU.
inline constexpr int kMaxLaunchRanks = 8;

// Loads the kernel into the current device and readies it for launches. Left to the first launch, a
// load may wait for the device to be idle, while another rank's kernel on it waits for this one.
cudaError_t load_forward();

// One launch for `num_ranks` ranks of this device; `ranks` is host memory, copied.
cudaError_t launch_forward(const ForwardParams* ranks, int num_ranks, const LaunchOptions& options,
                           cudaStream_t stream);

}  // namespace catamount::cuda
