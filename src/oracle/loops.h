// The few loops that the oracle is made of, in FP64.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "catamount/moe.h"

namespace catamount::oracle {

// Four elements at a time: compilers turn that into vector instructions at -O2.
inline double dot(const double* __restrict a, const double* __restrict b, std::int64_t n) {
  double sum[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int j = 0; j < 4; ++j) sum[j] += a[i + j] * b[i + j];
  }
  for (; i < n; ++i) sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// y += a x
inline void axpy(double a, const double* __restrict x, double* __restrict y, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int j = 0; j < 4; ++j) y[i + j] += a * x[i + j];
  }
  for (; i < n; ++i) y[i] += a * x[i];
}

struct Activation {
  double h, dh_dgate, dh_dup;
};

// The formula at the head of catamount/moe.h. Clamps are comparisons that let NaN through.
inline Activation activate(double gate, double up, const Swiglu& p) {
  const double limit = p.limit;
  const double alpha = p.alpha;
  const double g = gate > limit ? limit : gate;
  const double u = (up > limit ? limit : (up < -limit ? -limit : up)) + p.up_offset;
  const double s = 1.0 / (1.0 + std::exp(-alpha * g));
  return {
      g * s * u,
      gate > limit ? 0.0 : (s + g * alpha * s * (1.0 - s)) * u,
      up > limit || up < -limit ? 0.0 : g * s,
  };
}

// Calls work(i) for i in [0, n) on the machine's threads. Each i writes only what is its own, so
// that results do not depend on the threads. The first exception is passed on.
template <class Work>
void parallel_for(std::int64_t n, const Work& work) {
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto run = [&] {
    try {
      for (std::int64_t i = next++; i < n; i = next++) work(i);
    } catch (...) {
      next = n;
      const std::scoped_lock lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> pool;
    const std::int64_t threads = std::min<std::int64_t>(std::thread::hardware_concurrency(), n);
    for (std::int64_t w = 1; w < threads; ++w) pool.emplace_back(run);
    run();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace catamount::oracle
