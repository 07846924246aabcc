#include "oracle/oracle.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "oracle/loops.h"

namespace catamount::oracle {
namespace {

const double* row(const Values& m, std::int64_t i, std::int64_t cols) {
  return m.data() + i * cols;
}
double* row(Values& m, std::int64_t i, std::int64_t cols) { return m.data() + i * cols; }

Values zeros(std::int64_t rows, std::int64_t cols) {
  return Values(static_cast<std::size_t>(rows * cols), 0.0);
}

void round_row(const Rounding::Row& rounding, std::span<double> values) {
  if (rounding) rounding(values);
}

Values rounded_rows(const Rounding::Row& rounding, Values m, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t i = 0; i < rows; ++i) {
    round_row(rounding, {row(m, i, cols), static_cast<std::size_t>(cols)});
  }
  return m;
}

void check_size(const char* name, const Values& values, std::int64_t expected) {
  check(static_cast<std::int64_t>(values.size()) == expected, "{}: expected {} values, got {}",
        name, expected, values.size());
}

void check_experts(const Experts& e, std::int64_t hidden) {
  const std::int64_t matrix = e.count * e.width * hidden;
  check_size("gate", e.gate, matrix);
  check_size("up", e.up, matrix);
  check_size("down", e.down, matrix);
  if (!e.gate_dgrad.empty()) check_size("gate_dgrad", e.gate_dgrad, matrix);
  if (!e.up_dgrad.empty()) check_size("up_dgrad", e.up_dgrad, matrix);
  if (!e.down_dgrad.empty()) check_size("down_dgrad", e.down_dgrad, matrix);
  const bool biases = !e.bias_gate.empty() || !e.bias_up.empty() || !e.bias_down.empty();
  check_size("bias_gate", e.bias_gate, biases ? e.count * e.width : 0);
  check_size("bias_up", e.bias_up, biases ? e.count * e.width : 0);
  check_size("bias_down", e.bias_down, biases ? e.count * hidden : 0);
}

void check_problem(const Problem& p) {
  const std::int64_t slots = p.tokens * p.topk;
  check_size("x", p.x, p.tokens * p.hidden);
  check_size("topk_weights", p.topk_weights, slots);
  check(static_cast<std::int64_t>(p.topk_idx.size()) == slots,
        "topk_idx: expected {} values, got {}", slots, p.topk_idx.size());
  for (const std::int64_t e : p.topk_idx) {
    check(e >= -1 && e < p.experts.count, "expected an expert in [-1, {}), got {}", p.experts.count,
          e);
  }
  check_experts(p.experts, p.hidden);
  check_experts(p.shared, p.hidden);
}

// One token at one expert.
struct Visit {
  std::int64_t token;
  std::int64_t slot;  // topk: the shared expert
  std::int64_t expert;
  double weight;
};

// Expert by expert, so that an expert's weights stay in cache; in each in the order of slots.
std::vector<Visit> routed_visits(const Problem& p) {
  std::vector<Visit> visits;
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    for (std::int64_t k = 0; k < p.topk; ++k) {
      const auto at = static_cast<std::size_t>(t * p.topk + k);
      if (p.topk_idx[at] >= 0) visits.push_back({t, k, p.topk_idx[at], p.topk_weights[at]});
    }
  }
  std::stable_sort(visits.begin(), visits.end(),
                   [](const Visit& a, const Visit& b) { return a.expert < b.expert; });
  return visits;
}

std::vector<Visit> shared_visits(const Problem& p) {
  std::vector<Visit> visits;
  for (std::int64_t t = 0; t < p.tokens && p.shared.count > 0; ++t) {
    visits.push_back({t, p.topk, 0, 1.0});
  }
  return visits;
}

// [T, topk + 1, H] -> [T, H]
Values sum_of_slots(const Problem& p, const Values& slots) {
  Values sum = zeros(p.tokens, p.hidden);
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    for (std::int64_t k = 0; k <= p.topk; ++k) {
      axpy(1.0, row(slots, t * (p.topk + 1) + k, p.hidden), row(sum, t, p.hidden), p.hidden);
    }
  }
  return sum;
}

// out[i] = bias[i] + dot(weight row i, in), for one expert's [rows, cols] matrix.
void multiply(const Values& weight, const Values& bias, std::int64_t expert, std::int64_t rows,
              std::int64_t cols, const double* in, Values* out) {
  out->resize(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    const double b = bias.empty() ? 0.0 : *row(bias, expert * rows + i, 1);
    *row(*out, i, 1) = b + dot(row(weight, expert * rows + i, cols), in, cols);
  }
}

// out += in transposed times weight: for dgrad.
void add_transposed(const Values& weight, std::int64_t expert, std::int64_t rows, std::int64_t cols,
                    const double* in, double* out) {
  for (std::int64_t i = 0; i < rows; ++i) {
    axpy(in[i], row(weight, expert * rows + i, cols), out, cols);
  }
}

void forward_visits(const Problem& p, const Experts& w, const std::vector<Visit>& visits,
                    const Values& x, Values* slots) {
  const bool before_down = p.router_weight == RouterWeight::before_down;
  parallel_for(static_cast<std::int64_t>(visits.size()), [&](std::int64_t v) {
    const Visit& visit = visits[static_cast<std::size_t>(v)];
    const double* token = row(x, visit.token, p.hidden);
    Values gate;
    Values up;
    Values y;
    multiply(w.gate, w.bias_gate, visit.expert, w.width, p.hidden, token, &gate);
    multiply(w.up, w.bias_up, visit.expert, w.width, p.hidden, token, &up);
    Values h(gate.size());
    for (std::size_t i = 0; i < h.size(); ++i) {
      h[i] = activate(gate[i], up[i], p.swiglu).h * (before_down ? visit.weight : 1.0);
    }
    round_row(p.rounding.operand, h);
    multiply(w.down, {}, visit.expert, p.hidden, w.width, h.data(), &y);
    double* out = row(*slots, visit.token * (p.topk + 1) + visit.slot, p.hidden);
    axpy(before_down ? 1.0 : visit.weight, y.data(), out, p.hidden);
    if (!w.bias_down.empty()) {
      axpy(visit.weight, row(w.bias_down, visit.expert, p.hidden), out, p.hidden);
    }
  });
}

// What backward keeps of each visit, [visits, I].
struct VisitRows {
  Values d_gate, d_up;
  Values h;  // weight * h
};

struct BackwardInputs {
  Values x, dy;  // rounded
};

// d_gate, d_up and weight * h of every visit; dx goes to `slots`, d_topk_weights to its place.
VisitRows backward_visits(const Problem& p, const Experts& w, const std::vector<Visit>& visits,
                          const BackwardInputs& in, Values* slots, Values* d_topk_weights) {
  const Values& gate_dgrad = w.gate_dgrad.empty() ? w.gate : w.gate_dgrad;
  const Values& up_dgrad = w.up_dgrad.empty() ? w.up : w.up_dgrad;
  const Values& down_dgrad = w.down_dgrad.empty() ? w.down : w.down_dgrad;
  const auto count = static_cast<std::int64_t>(visits.size());
  VisitRows rows{zeros(count, w.width), zeros(count, w.width), zeros(count, w.width)};
  parallel_for(count, [&](std::int64_t v) {
    const Visit& visit = visits[static_cast<std::size_t>(v)];
    const double* x = row(in.x, visit.token, p.hidden);
    const double* dy = row(in.dy, visit.token, p.hidden);
    const std::span d_gate(row(rows.d_gate, v, w.width), static_cast<std::size_t>(w.width));
    const std::span d_up(row(rows.d_up, v, w.width), d_gate.size());
    const std::span h(row(rows.h, v, w.width), d_gate.size());
    Values gate;
    Values up;
    multiply(w.gate, w.bias_gate, visit.expert, w.width, p.hidden, x, &gate);
    multiply(w.up, w.bias_up, visit.expert, w.width, p.hidden, x, &up);
    round_row(p.rounding.kept, gate);
    round_row(p.rounding.kept, up);
    Values dh = zeros(1, w.width);
    add_transposed(down_dgrad, visit.expert, p.hidden, w.width, dy, dh.data());
    double d_weight =
        w.bias_down.empty() ? 0.0 : dot(row(w.bias_down, visit.expert, p.hidden), dy, p.hidden);
    for (std::size_t i = 0; i < h.size(); ++i) {
      const Activation a = activate(gate[i], up[i], p.swiglu);
      d_weight += a.h * dh[i];
      d_gate[i] = visit.weight * dh[i] * a.dh_dgate;
      d_up[i] = visit.weight * dh[i] * a.dh_dup;
      h[i] = visit.weight * a.h;
    }
    for (const std::span<double> r : {d_gate, d_up, h}) round_row(p.rounding.operand, r);
    double* dx = row(*slots, visit.token * (p.topk + 1) + visit.slot, p.hidden);
    add_transposed(gate_dgrad, visit.expert, w.width, p.hidden, d_gate.data(), dx);
    add_transposed(up_dgrad, visit.expert, w.width, p.hidden, d_up.data(), dx);
    if (visit.slot < p.topk) *row(*d_topk_weights, visit.token * p.topk + visit.slot, 1) = d_weight;
  });
  return rows;
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

// Row by row of each gradient, over the visits of its expert.
Experts weight_grads(const Problem& p, const Experts& w, const std::vector<Visit>& visits,
                     const BackwardInputs& in, const VisitRows& rows) {
  Experts g = zeros_like(w);
  std::vector<std::int64_t> first(static_cast<std::size_t>(w.count) + 1, 0);
  for (const Visit& visit : visits) ++first[static_cast<std::size_t>(visit.expert) + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  // add(v, its token, weight) for every visit of the expert that row i belongs to.
  const auto for_visits = [&](std::int64_t i, std::int64_t rows_per_expert, const auto& add) {
    const auto e = static_cast<std::size_t>(i / rows_per_expert);
    for (std::int64_t v = first[e]; v < first[e + 1]; ++v) {
      const Visit& visit = visits[static_cast<std::size_t>(v)];
      add(v, visit.token, visit.weight);
    }
  };
  parallel_for(w.count * w.width, [&](std::int64_t i) {
    for_visits(i, w.width, [&](std::int64_t v, std::int64_t token, double) {
      const double d_gate = row(rows.d_gate, v, w.width)[i % w.width];
      const double d_up = row(rows.d_up, v, w.width)[i % w.width];
      axpy(d_gate, row(in.x, token, p.hidden), row(g.gate, i, p.hidden), p.hidden);
      axpy(d_up, row(in.x, token, p.hidden), row(g.up, i, p.hidden), p.hidden);
      if (w.bias_gate.empty()) return;
      *row(g.bias_gate, i, 1) += d_gate;
      *row(g.bias_up, i, 1) += d_up;
    });
  });
  parallel_for(w.count * p.hidden, [&](std::int64_t j) {
    for_visits(j, p.hidden, [&](std::int64_t v, std::int64_t token, double weight) {
      const double dy = row(in.dy, token, p.hidden)[j % p.hidden];
      axpy(dy, row(rows.h, v, w.width), row(g.down, j, w.width), w.width);
      if (!w.bias_down.empty()) *row(g.bias_down, j, 1) += weight * dy;
    });
  });
  return g;
}

}  // namespace

Values forward(const Problem& p) {
  check_problem(p);
  const Values x = rounded_rows(p.rounding.operand, p.x, p.tokens, p.hidden);
  Values slots = zeros(p.tokens * (p.topk + 1), p.hidden);
  forward_visits(p, p.experts, routed_visits(p), x, &slots);
  forward_visits(p, p.shared, shared_visits(p), x, &slots);
  return sum_of_slots(p, slots);
}

Gradients backward(const Problem& p, const Values& dy) {
  check_problem(p);
  check_size("dy", dy, p.tokens * p.hidden);
  const BackwardInputs in{rounded_rows(p.rounding.operand, p.x, p.tokens, p.hidden),
                          rounded_rows(p.rounding.operand, dy, p.tokens, p.hidden)};
  Gradients g;
  g.d_topk_weights = zeros(p.tokens, p.topk);
  Values slots = zeros(p.tokens * (p.topk + 1), p.hidden);
  const auto pass = [&](const Experts& w, const std::vector<Visit>& visits) {
    const VisitRows rows = backward_visits(p, w, visits, in, &slots, &g.d_topk_weights);
    return weight_grads(p, w, visits, in, rows);
  };
  g.experts = pass(p.experts, routed_visits(p));
  g.shared = pass(p.shared, shared_visits(p));
  g.dx = sum_of_slots(p, slots);
  return g;
}

}  // namespace catamount::oracle
