// LayerCase's results against the oracle, and their checksums.
#include "model/layer_case.h"
#include "oracle/quantized.h"

namespace catamount::model {
namespace {

using oracle::Values;

Values to_doubles(const std::vector<Bf16>& in) {
  Values out;
  out.reserve(in.size());
  for (const Bf16 v : in) out.push_back(static_cast<double>(to_float(v)));
  return out;
}
Values to_doubles(const std::vector<float>& in) { return {in.begin(), in.end()}; }

void append(Values* to, const Values& from) { to->insert(to->end(), from.begin(), from.end()); }

// [E, 2 rows, cols] -> [E, rows, cols] twice.
void split(const Values& fused, std::int64_t experts, std::int64_t half, Values* first,
           Values* second) {
  for (std::int64_t e = 0; e < experts && !fused.empty(); ++e) {
    const auto begin = fused.begin() + 2 * e * half;
    first->insert(first->end(), begin, begin + half);
    second->insert(second->end(), begin + half, begin + 2 * half);
  }
}

Values grad_values(const RankTensors::Grad& grad, DType dtype) {
  const std::size_t n = grad.bytes.size() / dtype_bytes(dtype);
  Values out(n);
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = static_cast<double>(dtype == DType::bf16
                                     ? to_float(reinterpret_cast<const Bf16*>(grad.bytes.data())[i])
                                     : reinterpret_cast<const float*>(grad.bytes.data())[i]);
    // What the pass added; a BF16 buffer holds the rounded sum.
    if (!grad.before.empty()) out[i] -= grad.before[i];
  }
  return out;
}

// The bounds of the project: relative norm errors.
double bound_of(Precision precision, bool gradient) {
  if (precision != Precision::bf16) return 5e-3;
  return gradient ? 1e-2 : 4e-3;
}

class Fnv {
 public:
  template <class T>
  void add(const std::vector<T>& values) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
    for (std::size_t i = 0; i < values.size() * sizeof(T); ++i) {
      hash_ = (hash_ ^ bytes[i]) * 0x100000001b3ULL;
    }
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

}  // namespace

oracle::Problem LayerCase::problem() const {
  const MoeConfig& c = options_.config;
  oracle::Problem p;
  p.hidden = c.hidden;
  p.topk = c.topk;
  p.swiglu = c.swiglu;
  p.router_weight = c.router_weight;
  for (const RankTensors& rank : ranks_) {
    p.tokens += rank.tokens;
    append(&p.x, to_doubles(rank.x));
    append(&p.topk_weights, to_doubles(rank.topk_weights));
    p.topk_idx.insert(p.topk_idx.end(), rank.topk_idx.begin(), rank.topk_idx.end());
  }
  const auto fill = [&](oracle::Experts& e, std::int64_t count, std::int64_t width,
                        const std::vector<Bf16>& gate_up, const std::vector<Bf16>& down) {
    e.count = count;
    e.width = width;
    split(to_doubles(gate_up), count, width * c.hidden, &e.gate, &e.up);
    e.down = to_doubles(down);
  };
  fill(p.experts, c.num_experts, c.intermediate, weights_.gate_up, weights_.down);
  split(to_doubles(weights_.bias_gate_up), c.num_experts, c.intermediate, &p.experts.bias_gate,
        &p.experts.bias_up);
  p.experts.bias_down = to_doubles(weights_.bias_down);
  if (c.shared_intermediate > 0) {
    fill(p.shared, 1, c.shared_intermediate, weights_.shared_gate_up, weights_.shared_down);
  }
  oracle::apply_precision(c.precision, &p);
  return p;
}

Values LayerCase::all_dy() const {
  Values dy;
  for (const RankTensors& rank : ranks_) append(&dy, to_doubles(rank.dy));
  return dy;
}

std::vector<NamedComparison> LayerCase::compare_forward() const {
  Values out;
  for (const RankTensors& rank : ranks_) append(&out, to_doubles(rank.out));
  const Values reference = oracle::forward(problem());
  return {
      {"out", oracle::compare<double>(out, reference), bound_of(options_.config.precision, false)}};
}

std::vector<NamedComparison> LayerCase::compare_backward() const {
  const MoeConfig& c = options_.config;
  const DType dtype = options_.grad_dtype;
  Values dx;
  Values d_weights;
  oracle::Experts mine;
  for (const RankTensors& rank : ranks_) {
    const std::int64_t e = c.num_local_experts();
    append(&dx, to_doubles(rank.dx));
    append(&d_weights, to_doubles(rank.d_topk_weights));
    if (options_.fused_gate_up) {
      split(grad_values(rank.d_gate_up, dtype), e, c.intermediate * c.hidden, &mine.gate, &mine.up);
      split(grad_values(rank.d_bias_gate_up, dtype), e, c.intermediate, &mine.bias_gate,
            &mine.bias_up);
    } else {
      append(&mine.gate, grad_values(rank.d_gate, dtype));
      append(&mine.up, grad_values(rank.d_up, dtype));
      append(&mine.bias_gate, grad_values(rank.d_bias_gate, dtype));
      append(&mine.bias_up, grad_values(rank.d_bias_up, dtype));
    }
    append(&mine.down, grad_values(rank.d_down, dtype));
    append(&mine.bias_down, grad_values(rank.d_bias_down, dtype));
  }
  const oracle::Gradients reference = oracle::backward(problem(), all_dy());
  const double bound = bound_of(c.precision, true);
  std::vector<NamedComparison> all;
  const auto add = [&](const char* name, const Values& result, const Values& expected) {
    if (result.empty() && expected.empty()) return;
    all.push_back({name, oracle::compare<double>(result, expected), bound});
  };
  add("dx", dx, reference.dx);
  add("d_topk_weights", d_weights, reference.d_topk_weights);
  add("d_gate", mine.gate, reference.experts.gate);
  add("d_up", mine.up, reference.experts.up);
  add("d_down", mine.down, reference.experts.down);
  add("d_bias_gate", mine.bias_gate, reference.experts.bias_gate);
  add("d_bias_up", mine.bias_up, reference.experts.bias_up);
  add("d_bias_down", mine.bias_down, reference.experts.bias_down);
  if (c.shared_intermediate > 0) {
    // Data parallel: each rank has the gradient of its own tokens; together they are the whole.
    Values gate_up(reference.shared.gate.size() * 2, 0.0);
    Values down(reference.shared.down.size(), 0.0);
    for (const RankTensors& rank : ranks_) {
      const Values a = grad_values(rank.d_shared_gate_up, dtype);
      const Values b = grad_values(rank.d_shared_down, dtype);
      for (std::size_t i = 0; i < a.size(); ++i) gate_up[i] += a[i];
      for (std::size_t i = 0; i < b.size(); ++i) down[i] += b[i];
    }
    Values gate;
    Values up;
    split(gate_up, 1, c.shared_intermediate * c.hidden, &gate, &up);
    add("d_shared_gate", gate, reference.shared.gate);
    add("d_shared_up", up, reference.shared.up);
    add("d_shared_down", down, reference.shared.down);
  }
  return all;
}

std::uint64_t LayerCase::forward_checksum() const {
  Fnv hash;
  for (const RankTensors& rank : ranks_) hash.add(rank.out);
  return hash.value();
}

std::uint64_t LayerCase::backward_checksum() const {
  Fnv hash;
  for (const RankTensors& rank : ranks_) {
    hash.add(rank.dx);
    hash.add(rank.d_topk_weights);
    for (const RankTensors::Grad* grad :
         {&rank.d_gate, &rank.d_up, &rank.d_gate_up, &rank.d_down, &rank.d_bias_gate,
          &rank.d_bias_up, &rank.d_bias_gate_up, &rank.d_bias_down, &rank.d_shared_gate_up,
          &rank.d_shared_down}) {
      hash.add(grad->bytes);
    }
  }
  return hash.value();
}

}  // namespace catamount::model
