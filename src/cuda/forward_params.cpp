#include "cuda/forward_params.h"

#include <cmath>
#include <cstring>

#include "core/saved.h"

namespace catamount::cuda {
namespace {

template <class Params>
Params zeroed() {
  Params p;
  std::memset(static_cast<void*>(&p), 0, sizeof(p));
  return p;
}

std::int64_t offset_from(const std::byte* heap, const void* data) {
  if (data == nullptr) return 0;
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) -
                                   reinterpret_cast<std::uintptr_t>(heap));
}

// Whether peers can read the tensor where it is.
bool is_visible(const CudaPeers& peers, int rank, const ConstTensorView& tensor) {
  if (peers.shares_addresses() || peers.ep_size() == 1) return true;
  const std::int64_t offset = offset_from(peers.table(rank).base[rank], tensor.data);
  return offset >= 0 && offset + static_cast<std::int64_t>(tensor.bytes()) <=
                            static_cast<std::int64_t>(peers.heap_bytes());
}

std::int64_t published_offset(const CudaPeers& peers, int rank, const ConstTensorView& tensor,
                              const Region& copy) {
  return is_visible(peers, rank, tensor) ? offset_from(peers.table(rank).base[rank], tensor.data)
                                         : static_cast<std::int64_t>(copy.offset);
}

std::uint64_t nanoseconds(double seconds) {
  constexpr double kLongest = 9e18;
  return static_cast<std::uint64_t>(std::fmin(seconds * 1e9, kLongest));
}

RoutingTables routing_tables(const MoeConfig& config, const ForwardArgs& args, std::byte* heap) {
  if (args.saved.data == nullptr) return HeapLayout(config).routing.tables(heap);
  return SavedLayout(config).routing.tables(static_cast<std::byte*>(args.saved.data));
}

SavedHeader* saved_header(const MoeConfig& config, const ForwardArgs& args) {
  if (args.saved.data == nullptr) return nullptr;
  return reinterpret_cast<SavedHeader*>(static_cast<std::byte*>(args.saved.data) +
                                        SavedLayout(config).header.offset);
}

const Bf16* bf16(const ConstTensorView& tensor) { return static_cast<const Bf16*>(tensor.data); }

DeviceBias bias(const ConstTensorView& tensor, std::int64_t first, std::int64_t expert_stride) {
  if (!tensor.present()) return {};
  const auto* data = static_cast<const std::byte*>(tensor.data);
  return {data + static_cast<std::size_t>(first) * dtype_bytes(tensor.dtype), expert_stride,
          tensor.dtype == DType::f32};
}

void add_weights(const MoeConfig& config, const ExpertWeights& w, ForwardParams* p) {
  const std::int64_t i = config.intermediate;
  p->fused_gate_up = w.gate_up.present();
  p->gate = bf16(p->fused_gate_up ? w.gate_up : w.gate);
  p->up = p->fused_gate_up ? nullptr : bf16(w.up);
  p->down = bf16(w.down);
  p->shared_fused_gate_up = w.shared_gate_up.present();
  p->shared_gate = bf16(p->shared_fused_gate_up ? w.shared_gate_up : w.shared_gate);
  p->shared_up = p->shared_fused_gate_up ? nullptr : bf16(w.shared_up);
  p->shared_down = bf16(w.shared_down);
  if (w.bias_gate_up.present()) {
    p->bias_gate = bias(w.bias_gate_up, 0, 2 * i);
    p->bias_up = bias(w.bias_gate_up, i, 2 * i);
  } else {
    p->bias_gate = bias(w.bias_gate, 0, i);
    p->bias_up = bias(w.bias_up, 0, i);
  }
  p->bias_down = bias(w.bias_down, 0, config.hidden);
}

void add_saved(const MoeConfig& config, const ForwardArgs& args, ForwardParams* p) {
  if (args.saved.data == nullptr) return;
  const SavedLayout layout(config);
  const auto at = [&](const Region& region) {
    return region.bytes == 0
               ? nullptr
               : reinterpret_cast<Bf16*>(static_cast<std::byte*>(args.saved.data) + region.offset);
  };
  p->kept_pre_activations = at(layout.pre_activations);
  p->kept_shared_pre_activations = at(layout.shared_pre_activations);
  p->kept_x = at(layout.x);
  p->saved_header = saved_header(config, args);
  p->saved_fingerprint = saved_fingerprint(config, p->tokens);
}

// A tensor's memory and alignment; messages name it.
void check_tensor(int rank, const char* name, const void* data, std::size_t bytes,
                  std::size_t alignment) {
  if (data == nullptr || bytes == 0) return;
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  const bool on_device =
      attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  check(on_device, "rank {}: {} must be device memory, got a host pointer ({})", rank, name,
        fmt::ptr(data));
  check(reinterpret_cast<std::uintptr_t>(data) % alignment == 0,
        "rank {}: {} must be aligned to {} bytes, got {}", rank, name, alignment, fmt::ptr(data));
}

}  // namespace

RoutingParams routing_params(const CudaPeers& peers, const LocalRank& local,
                             const MoeConfig& config, const ForwardArgs& args) {
  auto p = zeroed<RoutingParams>();
  const HeapLayout layout(config);
  p.peers = peers.table(local.rank);
  std::byte* heap = p.peers.base[local.rank];
  const auto assign = [&]<class T>(T*& pointer, const Region& region) {
    pointer = reinterpret_cast<T*>(heap + region.offset);
  };
  p.inputs.tokens = args.x.shape[0];
  p.inputs.x_offset = published_offset(peers, local.rank, args.x, layout.x_quantized);
  p.inputs.x_stride = hidden_row(config).stride_bytes();
  p.inputs.topk_idx_offset =
      published_offset(peers, local.rank, args.topk_idx, layout.published_idx);
  p.inputs.topk_idx_is_64bit = args.topk_idx.dtype == DType::i64 ? 1 : 0;
  p.inputs.topk_weights_offset =
      published_offset(peers, local.rank, args.topk_weights, layout.published_weights);
  p.state = &local.memory->state;
  p.routing = &local.memory->routing;
  void* host_error = nullptr;
  check_cuda(cudaHostGetDevicePointer(&host_error, local.host_error.get(), 0),
             "cudaHostGetDevicePointer");
  p.host_error = static_cast<ErrorRecord*>(host_error);
  p.saved_header = saved_header(config, args);
  p.schedule = schedule_config(config, false, forward_tuning(config));
  assign(p.counters, layout.counters);
  p.num_counters = p.schedule.num_counters();
  assign(p.chunk_counts, layout.chunk_counts);
  p.tables = routing_tables(config, args, heap);
  assign(p.schedule_tables.runs, layout.runs);
  assign(p.schedule_tables.pieces, layout.pieces);
  assign(p.schedule_tables.block_piece, layout.block_piece);
  assign(p.schedule_tables.window_run, layout.window_run);
  for (int q = 0; q < kNumQueues; ++q) {
    assign(p.schedule_tables.segments[q], layout.segments[q]);
  }
  p.num_experts = config.num_experts;
  p.topk = config.topk;
  p.timeout_ns = nanoseconds(config.timeout_s);
  p.chunks = routing_chunks(worst_rows(config), peers.ranks_on(local.device));
  return p;
}

ForwardParams forward_params(const CudaPeers& peers, const LocalRank& local,
                             const MoeConfig& config, const ForwardArgs& args) {
  auto p = zeroed<ForwardParams>();
  const HeapLayout layout(config);
  p.peers = peers.table(local.rank);
  std::byte* heap = p.peers.base[local.rank];
  const auto pool = [&](const Region& region) {
    return reinterpret_cast<Bf16*>(heap + region.offset);
  };
  p.state = &local.memory->state;
  p.counters = reinterpret_cast<std::uint32_t*>(heap + layout.counters.offset);
  p.routing = routing_tables(config, args, heap);
  p.hidden = config.hidden;
  p.intermediate = config.intermediate;
  p.shared_intermediate = config.shared_intermediate;
  p.topk = config.topk;
  p.tokens = args.x.shape[0];
  p.capacity_blocks = capacity_blocks(config);
  p.x_blocks = x_blocks(config);
  p.num_local_experts = static_cast<int>(config.num_local_experts());
  p.swiglu = config.swiglu;
  p.router_weight = config.router_weight;
  p.timeout_ns = nanoseconds(config.timeout_s);
  p.x = bf16(args.x);
  p.topk_weights = static_cast<const float*>(args.topk_weights.data);
  p.out = static_cast<Bf16*>(args.out.data);
  add_weights(config, args.weights, &p);
  p.x_pool = pool(layout.x);
  p.h_pool = pool(layout.h);
  p.y_pool = pool(layout.y);
  p.shared_h = pool(layout.shared_h);
  p.shared_y = pool(layout.shared_y);
  p.home_rows_offset = static_cast<std::int64_t>(layout.home_rows.offset);
  add_saved(config, args, &p);
  return p;
}

void check_device_tensors(int rank, const ForwardArgs& args) {
  constexpr std::size_t kWide = 16;  // bulk copies and vector loads
  const auto check_view = [&](const char* name, const ConstTensorView& tensor,
                              std::size_t alignment) {
    if (tensor.present()) check_tensor(rank, name, tensor.data, tensor.bytes(), alignment);
  };
  check_view("x", args.x, kWide);
  check_view("topk_idx", args.topk_idx, dtype_bytes(args.topk_idx.dtype));
  check_view("topk_weights", args.topk_weights, dtype_bytes(DType::f32));
  check_view("out", args.out, kWide);
  const ExpertWeights& w = args.weights;
  check_view("gate", w.gate, kWide);
  check_view("up", w.up, kWide);
  check_view("gate_up", w.gate_up, kWide);
  check_view("down", w.down, kWide);
  check_view("bias_gate", w.bias_gate, dtype_bytes(w.bias_gate.dtype));
  check_view("bias_up", w.bias_up, dtype_bytes(w.bias_up.dtype));
  check_view("bias_gate_up", w.bias_gate_up, dtype_bytes(w.bias_gate_up.dtype));
  check_view("bias_down", w.bias_down, dtype_bytes(w.bias_down.dtype));
  check_view("shared_gate", w.shared_gate, kWide);
  check_view("shared_up", w.shared_up, kWide);
  check_view("shared_gate_up", w.shared_gate_up, kWide);
  check_view("shared_down", w.shared_down, kWide);
  check_tensor(rank, "saved", args.saved.data, args.saved.bytes, kWide);
}

void copy_published(const CudaPeers& peers, const LocalRank& local, const MoeConfig& config,
                    const ForwardArgs& args, cudaStream_t stream) {
  const HeapLayout layout(config);
  const auto copy = [&](const ConstTensorView& tensor, const Region& region) {
    if (tensor.size() == 0 || is_visible(peers, local.rank, tensor)) return;
    check_cuda(cudaMemcpyAsync(peers.table(local.rank).base[local.rank] + region.offset,
                               tensor.data, tensor.bytes(), cudaMemcpyDeviceToDevice, stream),
               "copying what peers read into the heap");
  };
  copy(args.x, layout.x_quantized);
  copy(args.topk_idx, layout.published_idx);
  copy(args.topk_weights, layout.published_weights);
}

}  // namespace catamount::cuda
