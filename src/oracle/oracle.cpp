#include "oracle/oracle.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace catamount::oracle {
namespace {

const double* row(const Values& m, std::int64_t i, std::int64_t cols) {
  return m.data() + i * cols;
}
double* row(Values& m, std::int64_t i, std::int64_t cols) { return m.data() + i * cols; }

double dot(const double* a, const double* b, std::int64_t n) {
  double sum[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int j = 0; j < 4; ++j) sum[j] += a[i + j] * b[i + j];
  }
  for (; i < n; ++i) sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

void axpy(double a, const double* x, double* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

void round_row(const Rounding::Row& rounding, Values& values) {
  if (rounding) rounding(values);
}

double sigmoid(double z) { return 1.0 / (1.0 + std::exp(-z)); }

struct Activation {
  double h, dh_dgate, dh_dup;
};

Activation activate(double gate, double up, const Swiglu& p) {
  const double limit = p.limit;
  const double g = gate > limit ? limit : gate;
  const double u = up > limit ? limit : (up < -limit ? -limit : up);
  const double s = sigmoid(p.alpha * g);
  Activation a{};
  a.h = g * s * (u + p.up_offset);
  a.dh_dgate = gate > limit ? 0.0 : (s + g * p.alpha * s * (1.0 - s)) * (u + p.up_offset);
  a.dh_dup = up > limit || up < -limit ? 0.0 : g * s;
  return a;
}

// One token at one expert.
class Visit {
 public:
  Visit(const Problem& problem, const Experts& experts, std::int64_t expert, double weight,
        Values x)
      : p_(problem), w_(experts), e_(expert), weight_(weight), x_(std::move(x)) {
    const std::int64_t first = e_ * w_.width;
    gate_.resize(static_cast<std::size_t>(w_.width));
    up_.resize(gate_.size());
    for (std::int64_t i = 0; i < w_.width; ++i) {
      const auto at = static_cast<std::size_t>(i);
      gate_[at] = dot(row(w_.gate, first + i, p_.hidden), x_.data(), p_.hidden);
      up_[at] = dot(row(w_.up, first + i, p_.hidden), x_.data(), p_.hidden);
      if (!w_.bias_gate.empty()) {
        gate_[at] += w_.bias_gate[static_cast<std::size_t>(first + i)];
        up_[at] += w_.bias_up[static_cast<std::size_t>(first + i)];
      }
    }
  }

  // weight * y, added to `out`.
  void add_forward(double* out) const {
    const bool before = p_.router_weight == RouterWeight::before_down;
    Values h(gate_.size());
    for (std::size_t i = 0; i < h.size(); ++i) {
      h[i] = activate(gate_[i], up_[i], p_.swiglu).h * (before ? weight_ : 1.0);
    }
    round_row(p_.rounding.operand, h);
    for (std::int64_t j = 0; j < p_.hidden; ++j) {
      const double y = dot(row(w_.down, e_ * p_.hidden + j, w_.width), h.data(), w_.width);
      const double bias =
          w_.bias_down.empty() ? 0.0 : w_.bias_down[static_cast<std::size_t>(e_ * p_.hidden + j)];
      out[j] += before ? y + weight_ * bias : weight_ * (y + bias);
    }
  }

  // dx added to `dx`, weight gradients to `grads`; returns the gradient of `weight`.
  double add_backward(const Values& dy, double* dx, Experts& grads) {
    round_row(p_.rounding.kept, gate_);
    round_row(p_.rounding.kept, up_);
    const Values& down = w_.down_dgrad.empty() ? w_.down : w_.down_dgrad;
    Values dh(gate_.size(), 0.0);
    for (std::int64_t j = 0; j < p_.hidden; ++j) {
      axpy(dy[static_cast<std::size_t>(j)], row(down, e_ * p_.hidden + j, w_.width), dh.data(),
           w_.width);
    }
    Values h(gate_.size());
    Values d_gate(gate_.size());
    Values d_up(gate_.size());
    double d_weight = 0.0;
    for (std::size_t i = 0; i < h.size(); ++i) {
      const Activation a = activate(gate_[i], up_[i], p_.swiglu);
      d_weight += a.h * dh[i];
      d_gate[i] = weight_ * dh[i] * a.dh_dgate;
      d_up[i] = weight_ * dh[i] * a.dh_dup;
      h[i] = weight_ * a.h;
    }
    if (!w_.bias_down.empty())
      d_weight += dot(row(w_.bias_down, e_, p_.hidden), dy.data(), p_.hidden);
    round_row(p_.rounding.operand, d_gate);
    round_row(p_.rounding.operand, d_up);
    round_row(p_.rounding.operand, h);
    add_weight_grads(dy, d_gate, d_up, h, grads);
    const Values& gate = w_.gate_dgrad.empty() ? w_.gate : w_.gate_dgrad;
    const Values& up = w_.up_dgrad.empty() ? w_.up : w_.up_dgrad;
    for (std::int64_t i = 0; i < w_.width; ++i) {
      const auto at = static_cast<std::size_t>(i);
      axpy(d_gate[at], row(gate, e_ * w_.width + i, p_.hidden), dx, p_.hidden);
      axpy(d_up[at], row(up, e_ * w_.width + i, p_.hidden), dx, p_.hidden);
    }
    return d_weight;
  }

 private:
  void add_weight_grads(const Values& dy, const Values& d_gate, const Values& d_up, const Values& h,
                        Experts& grads) const {
    for (std::int64_t i = 0; i < w_.width; ++i) {
      const auto at = static_cast<std::size_t>(i);
      axpy(d_gate[at], x_.data(), row(grads.gate, e_ * w_.width + i, p_.hidden), p_.hidden);
      axpy(d_up[at], x_.data(), row(grads.up, e_ * w_.width + i, p_.hidden), p_.hidden);
    }
    for (std::int64_t j = 0; j < p_.hidden; ++j) {
      axpy(dy[static_cast<std::size_t>(j)], h.data(), row(grads.down, e_ * p_.hidden + j, w_.width),
           w_.width);
    }
    if (w_.bias_gate.empty()) return;
    axpy(1.0, d_gate.data(), row(grads.bias_gate, e_, w_.width), w_.width);
    axpy(1.0, d_up.data(), row(grads.bias_up, e_, w_.width), w_.width);
    axpy(weight_, dy.data(), row(grads.bias_down, e_, p_.hidden), p_.hidden);
  }

  const Problem& p_;
  const Experts& w_;
  std::int64_t e_;
  double weight_;
  Values x_, gate_, up_;
};

Values token_row(const Values& m, std::int64_t t, std::int64_t cols, const Rounding& rounding) {
  Values values(row(m, t, cols), row(m, t, cols) + cols);
  round_row(rounding.operand, values);
  return values;
}

// Calls work(i) for i in [0, n) on the machine's threads. Each i writes only what is its own.
template <class Work>
void parallel_for(std::int64_t n, const Work& work) {
  const std::int64_t threads = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1,
                                                        std::max<std::int64_t>(n, 1));
  std::vector<std::jthread> pool;
  for (std::int64_t w = 0; w < threads; ++w) {
    pool.emplace_back([&work, w, n, threads] {
      for (std::int64_t i = w; i < n; i += threads) work(i);
    });
  }
}

Experts zeros_like(const Experts& e) {
  Experts g;
  g.count = e.count;
  g.width = e.width;
  g.gate.resize(e.gate.size());
  g.up.resize(e.up.size());
  g.down.resize(e.down.size());
  g.bias_gate.resize(e.bias_gate.size());
  g.bias_up.resize(e.bias_up.size());
  g.bias_down.resize(e.bias_down.size());
  return g;
}

}  // namespace

Values forward(const Problem& p) {
  Values out(static_cast<std::size_t>(p.tokens * p.hidden), 0.0);
  parallel_for(p.tokens, [&](std::int64_t t) {
    const Values x = token_row(p.x, t, p.hidden, p.rounding);
    for (std::int64_t k = 0; k < p.topk; ++k) {
      const auto slot = static_cast<std::size_t>(t * p.topk + k);
      if (p.topk_idx[slot] < 0) continue;
      Visit(p, p.experts, p.topk_idx[slot], p.topk_weights[slot], x)
          .add_forward(row(out, t, p.hidden));
    }
    if (p.shared.count > 0) Visit(p, p.shared, 0, 1.0, x).add_forward(row(out, t, p.hidden));
  });
  return out;
}

// Expert by expert, so that threads never share a gradient: dx is collected per slot, then summed.
Gradients backward(const Problem& p, const Values& dy) {
  const std::int64_t slots = p.topk + 1;  // the last: the shared expert
  Gradients g;
  g.experts = zeros_like(p.experts);
  g.shared = zeros_like(p.shared);
  g.d_topk_weights.resize(static_cast<std::size_t>(p.tokens * p.topk));
  Values slot_dx(static_cast<std::size_t>(p.tokens * slots * p.hidden), 0.0);
  const auto visit = [&](const Experts& experts, Experts& grads, std::int64_t e, std::int64_t t,
                         std::int64_t k, double weight) {
    Visit at(p, experts, e, weight, token_row(p.x, t, p.hidden, p.rounding));
    return at.add_backward(token_row(dy, t, p.hidden, p.rounding),
                           row(slot_dx, t * slots + k, p.hidden), grads);
  };
  parallel_for(p.experts.count + p.shared.count, [&](std::int64_t e) {
    for (std::int64_t t = 0; t < p.tokens; ++t) {
      if (e == p.experts.count) {
        visit(p.shared, g.shared, 0, t, p.topk, 1.0);
        continue;
      }
      for (std::int64_t k = 0; k < p.topk; ++k) {
        const auto slot = static_cast<std::size_t>(t * p.topk + k);
        if (p.topk_idx[slot] != e) continue;
        g.d_topk_weights[slot] = visit(p.experts, g.experts, e, t, k, p.topk_weights[slot]);
      }
    }
  });
  g.dx.resize(static_cast<std::size_t>(p.tokens * p.hidden), 0.0);
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    for (std::int64_t k = 0; k < slots; ++k) {
      axpy(1.0, row(slot_dx, t * slots + k, p.hidden), row(g.dx, t, p.hidden), p.hidden);
    }
  }
  return g;
}

}  // namespace catamount::oracle
