// A LayerCase whose tensors lie on the GPU: uploads them, runs passes, brings results back.
#pragma once

#include <vector>

#include "core/layout.h"
#include "gpu.h"
#include "model/layer_case.h"

namespace catamount::test {

class DeviceLayer {
 public:
  explicit DeviceLayer(model::LayerCase& layer) : layer_(layer), args_(layer.forward_args()) {
    for (ForwardArgs& a : args_) {
      a.stats = nullptr;
      a.x = arena_.upload(a.x);
      a.topk_idx = arena_.upload(a.topk_idx);
      a.topk_weights = arena_.upload(a.topk_weights);
      a.out = arena_.upload(a.out);
      if (a.saved.data != nullptr) a.saved.data = arena_.upload(a.saved.data, a.saved.bytes);
      for (ConstTensorView* w :
           {&a.weights.gate, &a.weights.up, &a.weights.gate_up, &a.weights.down,
            &a.weights.bias_gate, &a.weights.bias_up, &a.weights.bias_gate_up, &a.weights.bias_down,
            &a.weights.shared_gate, &a.weights.shared_up, &a.weights.shared_gate_up,
            &a.weights.shared_down}) {
        *w = arena_.upload(*w);
      }
    }
  }

  std::vector<ForwardArgs>& args() { return args_; }

  // NaN bytes in the outputs, in what is saved and in the heaps, but not in their control words.
  void poison(PeerMemory& peers) {
    poison_outputs();
    for (const int r : peers.local_ranks()) {
      cudaMemset(peers.table(r).base[r] + sizeof(HeapControl), 0xff,
                 peers.heap_bytes() - sizeof(HeapControl));
    }
    cudaDeviceSynchronize();
  }
  void poison_outputs() {
    for (const ForwardArgs& a : args_) {
      cudaMemset(a.out.data, 0xff, a.out.bytes());
      if (a.saved.data != nullptr) cudaMemset(a.saved.data, 0xff, a.saved.bytes);
    }
  }

  // The host's x, ids and weights again, where they were (same token counts).
  void upload_inputs() {
    const std::vector<ForwardArgs> host = layer_.forward_args();
    for (std::size_t r = 0; r < args_.size(); ++r) {
      const auto copy = [](const ConstTensorView& to, const ConstTensorView& from) {
        cudaMemcpy(const_cast<void*>(to.data), from.data, from.bytes(), cudaMemcpyHostToDevice);
      };
      copy(args_[r].x, host[r].x);
      copy(args_[r].topk_idx, host[r].topk_idx);
      copy(args_[r].topk_weights, host[r].topk_weights);
    }
  }

  void start(PeerMemory& peers, Stream stream = {}) {
    forward(peers, layer_.config(), args_, stream);
  }
  // Runs a pass and brings its outputs to the host's tensors.
  void run(PeerMemory& peers, Stream stream = {}) {
    start(peers, stream);
    synchronize(peers, stream);
    fetch();
  }
  void fetch() {
    for (std::size_t r = 0; r < args_.size(); ++r) {
      auto& out = layer_.ranks()[r].out;
      out = download(static_cast<const Bf16*>(args_[r].out.data), out.size());
    }
  }

 private:
  model::LayerCase& layer_;
  DeviceArena arena_;
  std::vector<ForwardArgs> args_;
};

inline std::unique_ptr<PeerMemory> peers_for(const MoeConfig& config) {
  return make_virtual_peers(config.ep_size, heap_bytes(config));
}

}  // namespace catamount::test
