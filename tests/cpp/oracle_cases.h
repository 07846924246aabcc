// A small layer that has everything in it, for the tests of the oracle.
#pragma once

#include <string>

#include "model/random.h"
#include "oracle/oracle.h"

namespace catamount::oracle {

struct Form {
  std::string name;
  bool biases = false;
  bool shared = false;
  Swiglu swiglu;
  RouterWeight router_weight = RouterWeight::in_combine;
};

inline Values random_values(model::Random& random, std::int64_t n) {
  Values values(static_cast<std::size_t>(n));
  for (double& v : values) v = random.normal();
  return values;
}

inline Experts random_experts(model::Random& random, std::int64_t count, std::int64_t width,
                              std::int64_t hidden, bool biases) {
  Experts e;
  e.count = count;
  e.width = width;
  for (Values* w : {&e.gate, &e.up, &e.down}) *w = random_values(random, count * width * hidden);
  if (!biases) return e;
  e.bias_gate = random_values(random, count * width);
  e.bias_up = random_values(random, count * width);
  e.bias_down = random_values(random, count * hidden);
  return e;
}

// 5 tokens, 3 slots, 4 experts: masked slots, a token without any, an expert named twice and three
// times by one token, an expert (2) that nobody names.
inline Problem small_problem(const Form& form) {
  model::Random random(11);
  Problem p;
  p.hidden = 6;
  p.topk = 3;
  p.tokens = 5;
  p.x = random_values(random, p.tokens * p.hidden);
  p.topk_idx = {0, 1, 3, 1, -1, 1, -1, -1, -1, 3, 3, 3, -1, 0, 3};
  p.topk_weights = random_values(random, p.tokens * p.topk);
  p.experts = random_experts(random, 4, 5, p.hidden, form.biases);
  if (form.shared) p.shared = random_experts(random, 1, 7, p.hidden, false);
  p.swiglu = form.swiglu;
  p.router_weight = form.router_weight;
  return p;
}

inline Values small_dy(const Problem& p) {
  model::Random random(12);
  return random_values(random, p.tokens * p.hidden);
}

}  // namespace catamount::oracle
