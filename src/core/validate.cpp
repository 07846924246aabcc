#include "core/validate.h"

#include <string>
#include <vector>

#include "core/check.h"
#include "core/layout.h"
#include "core/saved.h"

namespace catamount {
namespace {

using Dims = std::vector<std::int64_t>;

bool is_one_of(DType dtype, std::initializer_list<DType> allowed) {
  for (const DType d : allowed) {
    if (d == dtype) return true;
  }
  return false;
}

std::string describe(std::initializer_list<DType> allowed, const Dims& dims) {
  std::string text;
  for (const DType d : allowed) text += (text.empty() ? "" : " or ") + std::string(to_string(d));
  text += "[";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  }
  return text + "]";
}

// One rank's tensors; messages name the rank and the tensor.
struct TensorChecker {
  int rank;

  void require(const char* name, const ConstTensorView& tensor,
               std::initializer_list<DType> allowed, const Dims& dims) const {
    bool same_shape = tensor.num_dims == static_cast<int>(dims.size());
    for (std::size_t i = 0; same_shape && i < dims.size(); ++i) {
      same_shape = tensor.shape[i] == dims[i];
    }
    check(same_shape && is_one_of(tensor.dtype, allowed), "rank {}: {} must be {}, got {}", rank,
          name, describe(allowed, dims), to_string(tensor));
    check(tensor.data != nullptr || tensor.size() == 0, "rank {}: {} ({}) has a null pointer", rank,
          name, to_string(tensor));
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
    check(address % dtype_bytes(tensor.dtype) == 0, "rank {}: {} is not aligned to its {}", rank,
          name, to_string(tensor.dtype));
  }

  void forbid(const char* name, const ConstTensorView& tensor, const char* why) const {
    check(!tensor.present(), "rank {}: {} must be absent ({}), got {}", rank, name, why,
          to_string(tensor));
  }

  // gate and up, or gate_up; `extra` are the dims after the rows.
  void require_pair(const char* gate_name, const ConstTensorView& gate, const char* up_name,
                    const ConstTensorView& up, const char* fused_name, const ConstTensorView& fused,
                    std::initializer_list<DType> allowed, Dims lead, std::int64_t rows,
                    const Dims& extra) const {
    const auto dims = [&](std::int64_t n) {
      Dims d = lead;
      d.push_back(n);
      d.insert(d.end(), extra.begin(), extra.end());
      return d;
    };
    if (fused.present()) {
      forbid(gate_name, gate, "the fused form was given");
      forbid(up_name, up, "the fused form was given");
      require(fused_name, fused, allowed, dims(2 * rows));
    } else {
      require(gate_name, gate, allowed, dims(rows));
      require(up_name, up, allowed, dims(rows));
    }
  }
};

std::int64_t token_count(const TensorChecker& checker, const MoeConfig& config,
                         const ConstTensorView& x) {
  check(x.num_dims == 2, "rank {}: x must be bf16[T, {}], got {}", checker.rank, config.hidden,
        to_string(x));
  const std::int64_t tokens = x.shape[0];
  check(tokens >= 0 && tokens <= config.max_tokens,
        "rank {}: x has {} tokens, but max_tokens of the configuration is {}", checker.rank, tokens,
        config.max_tokens);
  return tokens;
}

void check_weights(const TensorChecker& c, const MoeConfig& config, const ExpertWeights& w) {
  const std::int64_t experts = config.num_local_experts();
  const std::int64_t h = config.hidden;
  const std::int64_t i = config.intermediate;
  c.require_pair("gate", w.gate, "up", w.up, "gate_up", w.gate_up, {DType::bf16}, {experts}, i,
                 {h});
  c.require("down", w.down, {DType::bf16}, {experts, h, i});
  const bool biases = w.bias_gate.present() || w.bias_up.present() || w.bias_gate_up.present() ||
                      w.bias_down.present();
  if (biases) {
    c.require_pair("bias_gate", w.bias_gate, "bias_up", w.bias_up, "bias_gate_up", w.bias_gate_up,
                   {DType::bf16, DType::f32}, {experts}, i, {});
    c.require("bias_down", w.bias_down, {DType::bf16, DType::f32}, {experts, h});
  }
  const std::int64_t s = config.shared_intermediate;
  if (s > 0) {
    c.require_pair("shared_gate", w.shared_gate, "shared_up", w.shared_up, "shared_gate_up",
                   w.shared_gate_up, {DType::bf16}, {}, s, {h});
    c.require("shared_down", w.shared_down, {DType::bf16}, {h, s});
  } else {
    const char* why = "shared_intermediate is 0";
    c.forbid("shared_gate", w.shared_gate, why);
    c.forbid("shared_up", w.shared_up, why);
    c.forbid("shared_gate_up", w.shared_gate_up, why);
    c.forbid("shared_down", w.shared_down, why);
  }
}

// A gradient has its weight's shape, or is absent: not wanted.
void check_grad(const TensorChecker& c, const char* name, const GradView& grad,
                const ConstTensorView& weight) {
  if (!grad.present()) return;
  check(weight.present(), "rank {}: {} was given, but its weight is absent", c.rank, name);
  c.require(name, grad.tensor, {DType::bf16, DType::f32},
            Dims(weight.shape.begin(), weight.shape.begin() + weight.num_dims));
}

void check_grads(const TensorChecker& c, const ExpertGrads& g, const ExpertWeights& w) {
  check_grad(c, "grads.gate", g.gate, w.gate);
  check_grad(c, "grads.up", g.up, w.up);
  check_grad(c, "grads.gate_up", g.gate_up, w.gate_up);
  check_grad(c, "grads.down", g.down, w.down);
  check_grad(c, "grads.bias_gate", g.bias_gate, w.bias_gate);
  check_grad(c, "grads.bias_up", g.bias_up, w.bias_up);
  check_grad(c, "grads.bias_gate_up", g.bias_gate_up, w.bias_gate_up);
  check_grad(c, "grads.bias_down", g.bias_down, w.bias_down);
  check_grad(c, "grads.shared_gate", g.shared_gate, w.shared_gate);
  check_grad(c, "grads.shared_up", g.shared_up, w.shared_up);
  check_grad(c, "grads.shared_gate_up", g.shared_gate_up, w.shared_gate_up);
  check_grad(c, "grads.shared_down", g.shared_down, w.shared_down);
}

template <class Args>
void check_inputs(const TensorChecker& c, const MoeConfig& config, const Args& a,
                  std::int64_t tokens) {
  c.require("x", a.x, {DType::bf16}, {tokens, config.hidden});
  c.require("topk_idx", a.topk_idx, {DType::i32, DType::i64}, {tokens, config.topk});
  c.require("topk_weights", a.topk_weights, {DType::f32}, {tokens, config.topk});
  check_weights(c, config, a.weights);
}

void check_saved_size(int rank, const MoeConfig& config, const SavedBuffer& saved) {
  const std::size_t needed = saved_bytes(config);
  check(saved.bytes >= needed, "rank {}: saved must have at least {} bytes (saved_bytes), got {}",
        rank, needed, saved.bytes);
  check(reinterpret_cast<std::uintptr_t>(saved.data) % 16 == 0,
        "rank {}: saved must be aligned to 16 bytes", rank);
}

void check_group(const PeerMemory& peers, const MoeConfig& config, std::size_t num_args) {
  validate(config);
  check(peers.ep_size() == config.ep_size,
        "the configuration has ep_size {}, but the peer memory has {} ranks", config.ep_size,
        peers.ep_size());
  check(num_args == peers.local_ranks().size(),
        "expected arguments of the {} ranks driven here, got {}", peers.local_ranks().size(),
        num_args);
  const std::size_t needed = heap_bytes(config);
  check(peers.heap_bytes() >= needed,
        "the peer memory has {} bytes a rank, but this configuration needs {} (heap_bytes)",
        peers.heap_bytes(), needed);
}

}  // namespace

void validate(const MoeConfig& c) {
  const std::int64_t multiple = c.precision == Precision::bf16 ? 8 : 32;
  const char* why = c.precision == Precision::bf16 ? "BF16" : "the FP8 precisions";
  const auto positive_multiple = [&](const char* name, std::int64_t value) {
    check(value > 0 && value % multiple == 0, "{} must be a positive multiple of {} for {}, got {}",
          name, multiple, why, value);
  };
  positive_multiple("hidden", c.hidden);
  positive_multiple("intermediate", c.intermediate);
  if (c.shared_intermediate != 0) positive_multiple("shared_intermediate", c.shared_intermediate);
  check(c.ep_size >= 1 && c.ep_size <= kMaxRanks, "ep_size must be in [1, {}], got {}", kMaxRanks,
        c.ep_size);
  check(c.num_experts >= 1 && c.num_experts % c.ep_size == 0,
        "num_experts must be a positive multiple of ep_size {}, got {}", c.ep_size, c.num_experts);
  constexpr std::int64_t kMaxExperts = 1 << 16;
  check(c.num_experts <= kMaxExperts, "num_experts must be at most {}, got {}", kMaxExperts,
        c.num_experts);
  constexpr std::int64_t kMaxTopk = 64;
  check(c.topk >= 1 && c.topk <= kMaxTopk && c.topk <= c.num_experts,
        "topk must be in [1, min({}, num_experts {})], got {}", kMaxTopk, c.num_experts, c.topk);
  constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;
  check(c.hidden <= kMaxWidth && c.intermediate <= kMaxWidth && c.shared_intermediate <= kMaxWidth,
        "hidden and intermediate must be at most {}, got {} and {} (shared {})", kMaxWidth,
        c.hidden, c.intermediate, c.shared_intermediate);
  // Row numbers are 32-bit, row block padding included.
  constexpr std::int64_t kMaxRows = std::int64_t{1} << 30;
  check(c.max_tokens >= 0 && c.max_tokens <= kMaxRows / (c.topk * c.ep_size),
        "max_tokens must be in [0, {}] (ep_size * max_tokens * topk <= 2^30), got {}",
        kMaxRows / (c.topk * c.ep_size), c.max_tokens);
  check(c.capacity_rows >= 0, "capacity_rows must not be negative, got {}", c.capacity_rows);
  check(c.timeout_s > 0, "timeout_s must be positive, got {}", c.timeout_s);
  check(c.reserve_sms >= 0 && c.comm_sms >= 0,
        "reserve_sms and comm_sms must not be negative, got {} and {}", c.reserve_sms, c.comm_sms);
  check(c.threads_per_rank >= 0, "threads_per_rank must not be negative, got {}",
        c.threads_per_rank);
  check(c.swiglu.limit > 0, "swiglu.limit must be positive (infinity: no clamp), got {}",
        c.swiglu.limit);
  check(c.swiglu.alpha == c.swiglu.alpha && c.swiglu.up_offset == c.swiglu.up_offset,
        "swiglu.alpha and swiglu.up_offset must be numbers, got {} and {}", c.swiglu.alpha,
        c.swiglu.up_offset);
}

std::size_t heap_bytes(const MoeConfig& config) {
  validate(config);
  return HeapLayout(config).bytes;
}

std::size_t saved_bytes(const MoeConfig& config) {
  validate(config);
  return SavedLayout(config).bytes;
}

void validate_forward(const PeerMemory& peers, const MoeConfig& config,
                      std::span<const ForwardArgs> ranks) {
  check_group(peers, config, ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const TensorChecker c{peers.local_ranks()[i]};
    const ForwardArgs& a = ranks[i];
    const std::int64_t tokens = token_count(c, config, a.x);
    check_inputs(c, config, a, tokens);
    c.require("out", a.out, {DType::bf16}, {tokens, config.hidden});
    if (a.saved.data != nullptr) check_saved_size(c.rank, config, a.saved);
  }
}

void validate_backward(const PeerMemory& peers, const MoeConfig& config,
                       std::span<const BackwardArgs> ranks) {
  check_group(peers, config, ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const TensorChecker c{peers.local_ranks()[i]};
    const BackwardArgs& a = ranks[i];
    const std::int64_t tokens = token_count(c, config, a.x);
    check_inputs(c, config, a, tokens);
    c.require("dy", a.dy, {DType::bf16}, {tokens, config.hidden});
    c.require("dx", a.dx, {DType::bf16}, {tokens, config.hidden});
    c.require("d_topk_weights", a.d_topk_weights, {DType::f32}, {tokens, config.topk});
    check_grads(c, a.grads, a.weights);
    check(a.saved.data != nullptr, "rank {}: saved must be what forward filled, got null", c.rank);
    check_saved_size(c.rank, config, a.saved);
    if (peers.backend() == Backend::cpu) check_saved_header(c.rank, config, tokens, a.saved);
  }
}

void validate_heaps(int ep_size, std::size_t heap_bytes) {
  check(ep_size >= 1 && ep_size <= kMaxRanks, "ep_size must be in [1, {}], got {}", kMaxRanks,
        ep_size);
  check(heap_bytes >= sizeof(HeapControl),
        "heap_bytes must hold at least the {} bytes of control words, got {}: ask "
        "heap_bytes(config)",
        sizeof(HeapControl), heap_bytes);
}

}  // namespace catamount
