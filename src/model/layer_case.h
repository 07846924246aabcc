// One layer over a group of ranks with everything it needs: random or given weights, tokens,
// routing, buffers; runs passes on any PeerMemory and compares them with the oracle. The command
// line and the tests are built on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "catamount/moe.h"
#include "catamount/peer_memory.h"
#include "core/dtype.h"
#include "model/routing_generators.h"
#include "oracle/compare.h"
#include "oracle/oracle.h"

namespace catamount::model {

// BF16 weights of all E experts, and of the shared one.
struct LayerWeights {
  std::vector<Bf16> gate_up;                   // [E, 2I, H]: gate rows, then up rows
  std::vector<Bf16> down;                      // [E, H, I]
  std::vector<float> bias_gate_up, bias_down;  // [E, 2I], [E, H]; empty: none
  std::vector<Bf16> shared_gate_up, shared_down;
};

struct LayerCaseOptions {
  MoeConfig config;                  // max_tokens is set from `tokens`
  std::vector<std::int64_t> tokens;  // one number per rank
  RoutingSpec routing;
  std::uint64_t seed = 0;
  bool biases = false;
  bool fused_gate_up = true;
  bool idx_64bit = false;
  DType grad_dtype = DType::f32;
  bool accumulate = false;     // gradients are added to random values
  bool save = true;            // forward keeps what backward needs
  bool random_weights = true;  // false: set_weights follows
};

// What one rank passes in and gets back.
struct RankTensors {
  std::int64_t tokens = 0;
  std::vector<Bf16> x, out, dy, dx;
  std::vector<std::int32_t> topk_idx;
  std::vector<std::int64_t> topk_idx_64;
  std::vector<float> topk_weights, d_topk_weights;
  std::vector<std::byte> saved;
  // This rank's weights, split if not fused; gradients beside them, as bytes of grad_dtype.
  std::vector<Bf16> gate, up;
  std::vector<float> bias_gate, bias_up;
  struct Grad {
    std::vector<std::byte> bytes;
    std::vector<double> before;  // what was there, when accumulating
  };
  Grad d_gate, d_up, d_gate_up, d_down, d_bias_gate, d_bias_up, d_bias_gate_up, d_bias_down;
  Grad d_shared_gate_up, d_shared_down;
  PassStats forward_stats, backward_stats;
};

struct NamedComparison {
  std::string name;
  oracle::Comparison comparison;
  double bound;
  bool ok() const { return comparison.within(bound); }
};

class LayerCase {
 public:
  explicit LayerCase(LayerCaseOptions options);

  const MoeConfig& config() const { return options_.config; }
  const LayerCaseOptions& options() const { return options_; }
  std::vector<RankTensors>& ranks() { return ranks_; }
  LayerWeights& weights() { return weights_; }

  // Replaces generated inputs. Sizes must be the generated ones.
  void set_weights(LayerWeights weights);
  void set_routing(int rank, Routing routing);
  void set_hidden(int rank, std::vector<Bf16> x);

  // Fills outputs, saved buffers and the ranks' heaps (but not their control words) with NaN bytes.
  void poison(PeerMemory& peers);
  void poison_outputs();

  std::vector<ForwardArgs> forward_args();
  std::vector<BackwardArgs> backward_args();
  void run_forward(PeerMemory& peers);
  void run_backward(PeerMemory& peers);

  // Everything that was computed, against the oracle.
  std::vector<NamedComparison> compare_forward() const;
  std::vector<NamedComparison> compare_backward() const;

  // FNV-1a over the bits of all outputs (forward's, or all of backward's).
  std::uint64_t forward_checksum() const;
  std::uint64_t backward_checksum() const;

  oracle::Problem problem() const;
  oracle::Values all_dy() const;

 private:
  void split_weights();
  ExpertWeights weight_views(RankTensors& rank, std::int64_t first_expert);
  ExpertGrads grad_views(RankTensors& rank);

  LayerCaseOptions options_;
  LayerWeights weights_;
  std::vector<RankTensors> ranks_;
};

}  // namespace catamount::model
