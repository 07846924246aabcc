// The mixture-of-experts (MoE) layer: configuration, forward and backward. The whole contract is on
// this page and in peer_memory.h.
//
//   h[r]   = swiglu(x[t] W_gate[e]^T + b_gate[e], x[t] W_up[e]^T + b_up[e])   row r = (token t,
//   slot k) y[r]   = h[r] W_down[e]^T + b_down[e]                                     e =
//   topk_idx[t, k] out[t] = sum_k topk_weights[t, k] * y[(t, k)]  (+ shared_expert(x[t]))    FP32
//   sum, fixed order over k swiglu(g, u) = g' sigmoid(alpha g') (u' + up_offset)
//                  g' = min(g, limit),  u' = clamp(u, -limit, limit)
//
// T tokens on this rank, H hidden, I intermediate, E experts in all, E_local = E / ep_size experts
// on each rank: rank r owns experts [r E_local, (r + 1) E_local).
//
// Dropless: every routed row is computed, whatever the imbalance. Bitwise repeatable: same inputs
// and configuration, same bits. Every size is 64-bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "catamount/error.h"
#include "catamount/tensor.h"

namespace catamount {

class PeerMemory;  // peer_memory.h

enum class Precision : std::uint8_t {
  bf16,         // BF16 operands, FP32 accumulation
  mxfp8,        // E4M3 + one E8M0 scale per 32; the blocks of each 128-span share their scale
  mxfp8_plain,  // E4M3 + one E8M0 scale per 32, each block its own
  fp8_block,    // E4M3 + FP32 scales: activations 1x128, weights 128x128
};

// Where topk_weights enters. Mathematically the same; the rounding differs.
enum class RouterWeight : std::uint8_t {
  in_combine,   // out[t] = sum_k weight * y
  before_down,  // h is scaled before the down GEMM (and b_down with it)
};

// What forward keeps for backward, besides the routing. Backward computes the rest again: same
// bits.
enum class Keep : std::uint8_t {
  routing,                // nothing else (activation checkpointing)
  pre_activations,        // gate and up rows: 4 I bytes a row
  pre_activations_and_x,  // and the dispatched rows of x: 2 H bytes a row more
};

// Both GEMM outputs and all parameters of the activation.
struct Swiglu {
  float alpha = 1.0F;
  float limit = std::numeric_limits<float>::infinity();
  float up_offset = 0.0F;  // gpt-oss: alpha 1.702, limit 7, up_offset 1
};

struct MoeConfig {
  std::int64_t hidden = 0;               // H: a multiple of 8 (BF16) or 32 (the FP8 precisions)
  std::int64_t intermediate = 0;         // I: likewise
  std::int64_t num_experts = 0;          // E: a multiple of ep_size
  std::int64_t topk = 0;                 // slots per token, in [1, 64]; may exceed no bound but E
  std::int64_t shared_intermediate = 0;  // width of the shared expert; 0 = there is none
  int ep_size = 1;                       // ranks the experts are spread over
  std::int64_t max_tokens = 0;           // no rank ever passes more tokens than this
  // Rows (of x, h, y) a rank holds at a time. When a rank receives more, it works through them in
  // macrobatches. Rounded up to whole row blocks; 0 = twice the rows of perfectly balanced routing,
  // or what the worst routing needs where that is less (with one rank: never a macrobatch).
  std::int64_t capacity_rows = 0;
  Precision precision = Precision::bf16;
  RouterWeight router_weight = RouterWeight::in_combine;
  Keep keep = Keep::pre_activations;
  Swiglu swiglu;
  double timeout_s = 60.0;  // a wait longer than this ends in Error(timeout)
  int reserve_sms = 0;      // CUDA: SMs left to other kernels
  int comm_sms = 0;         // CUDA: SMs that only move rows (the classic way; 0: every SM computes)
  int threads_per_rank = 0;  // CPU backend: 0 = the machine's threads over the ranks driven here

  std::int64_t num_local_experts() const noexcept { return num_experts / ep_size; }
};

// Weights of one rank, BF16. Give gate and up, or gate_up (gate rows, then up rows: not
// interleaved); biases are all present or all absent, BF16 or F32, and fused or separate as the
// weights are. View is ConstTensorView for the weights, GradView for their gradients.
template <class View>
struct ExpertTensors {
  View gate;            // [E_local, I, H]
  View up;              // [E_local, I, H]
  View gate_up;         // [E_local, 2I, H]
  View down;            // [E_local, H, I]
  View bias_gate;       // [E_local, I]
  View bias_up;         // [E_local, I]
  View bias_gate_up;    // [E_local, 2I]
  View bias_down;       // [E_local, H]
  View shared_gate;     // [I_shared, H]
  View shared_up;       // [I_shared, H]
  View shared_gate_up;  // [2 I_shared, H]
  View shared_down;     // [H, I_shared]
};
using ExpertWeights = ExpertTensors<ConstTensorView>;

// One gradient: BF16 or F32, overwritten, or added to (FP32 main-grad accumulation). Experts
// without rows: zero when overwriting, untouched when adding.
struct GradView {
  TensorView tensor;
  bool accumulate = false;

  bool present() const noexcept { return tensor.present(); }
};
using ExpertGrads = ExpertTensors<GradView>;

// What a pass did on one rank; filled where the caller asks for it.
struct PassStats {
  struct StageTime {
    const char* stage;  // a name from core/stage.h
    double busy_s;      // summed over the rank's workers
    std::int64_t tasks;
  };
  std::vector<StageTime> stages;
  double total_s = 0;     // wall time on this rank
  double wait_s = 0;      // summed over workers: time spent waiting on counters
  std::int64_t rows = 0;  // routed rows this rank computed
  std::int64_t macrobatches = 0;
  std::int64_t bytes_pulled = 0;     // read from other ranks
  std::int64_t bytes_sent_home = 0;  // written to other ranks
};

// What forward keeps for backward on one rank: `saved_bytes` bytes of the caller's, opaque.
struct SavedBuffer {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// One rank's forward. All pointers stay valid until the call returns.
struct ForwardArgs {
  ConstTensorView x;             // [T, H] BF16; T may be 0 and differ from rank to rank
  ConstTensorView topk_idx;      // [T, topk] I32 or I64; -1 = this slot is masked
  ConstTensorView topk_weights;  // [T, topk] F32
  ExpertWeights weights;
  TensorView out;     // [T, H] BF16
  SavedBuffer saved;  // data = nullptr: inference, nothing kept
  PassStats* stats = nullptr;
};

// One rank's backward: the same x, topk_idx, topk_weights and weights as forward's, and its
// `saved`.
struct BackwardArgs {
  ConstTensorView x;
  ConstTensorView topk_idx;
  ConstTensorView topk_weights;
  ExpertWeights weights;
  SavedBuffer saved;
  ConstTensorView dy;         // [T, H] BF16: gradient of the loss with respect to out
  TensorView dx;              // [T, H] BF16, overwritten
  TensorView d_topk_weights;  // [T, topk] F32, overwritten; exactly 0 in masked slots
  ExpertGrads grads;          // same form (fused or separate) as the weights
  PassStats* stats = nullptr;
};

// Raises Error(invalid_argument) when the configuration itself cannot be run.
void validate(const MoeConfig& config);

// Bytes of peer-readable memory each rank needs (PeerMemory::allocate), for both passes. Known
// before any pass and independent of the routing.
std::size_t heap_bytes(const MoeConfig& config);

// Bytes of ForwardArgs::saved on each rank.
std::size_t saved_bytes(const MoeConfig& config);

// A CUDA stream (cudaStream_t). The CPU backend runs at once and takes no notice.
struct Stream {
  void* handle = nullptr;
};

// Runs the pass on every rank that `peers` drives from this caller (`peers.local_ranks()`, in that
// order). Collective: each rank of the group must make the same call with the same configuration.
// On CUDA the call returns once the work is on the stream.
//
// Errors: invalid_argument (a tensor or size that does not fit: raised before anything is written),
// invalid_routing (an id outside [-1, E): no rank writes its out), timeout (a rank never arrived).
// What the device finds is raised by synchronize or by the next pass on the same peers. After an
// Error the library and the peer memory are usable again.
void forward(PeerMemory& peers, const MoeConfig& config, std::span<const ForwardArgs> ranks,
             Stream stream = {});
void backward(PeerMemory& peers, const MoeConfig& config, std::span<const BackwardArgs> ranks,
              Stream stream = {});

// Waits until the passes issued on `stream` are done, and raises the first error they met.
void synchronize(PeerMemory& peers, Stream stream = {});

}  // namespace catamount
