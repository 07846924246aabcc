// Rate of the CPU backend's GEMM on BF16 tiles, beside what else could do it: OpenBLAS behind the
// same widening to FP32, and oneDNN's matmul on BF16 as it lies. Every thread works on its own
// tile, as the ranks do.
//   bench_cpu_gemm [threads] [rounds]
#include "cpu/gemm.h"

#include <oneapi/dnnl/dnnl.hpp>
#ifdef CATAMOUNT_BENCH_OPENBLAS
#include <cblas.h>
#endif

#include <algorithm>
#include <barrier>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <thread>
#include <vector>

extern "C" void omp_set_num_threads(int);

namespace {

using namespace catamount;
using namespace catamount::cpu;
using std::int64_t;

struct Tile {
  GemmForm form;
  GemmShape shape;
  std::vector<std::uint16_t> a, b;
  std::vector<float> c;

  bool a_transposed() const { return form == GemmForm::wgrad; }
  bool b_transposed() const { return form == GemmForm::fprop; }
  int64_t lda() const { return a_transposed() ? shape.m : shape.k; }
  int64_t ldb() const { return b_transposed() ? shape.k : shape.n; }

  Tile(GemmForm f, const GemmShape& s, unsigned seed)
      : form(f),
        shape(s),
        a(static_cast<std::size_t>(s.m * s.k)),
        b(static_cast<std::size_t>(s.n * s.k)),
        c(static_cast<std::size_t>(s.m * s.n)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto* x : {&a, &b}) {
      for (auto& value : *x) {
        value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
      }
    }
  }
};

void run_catamount(Tile& t) {
  gemm(t.form, t.shape, {t.a.data(), DType::bf16, t.lda()}, {t.b.data(), DType::bf16, t.ldb()},
       {t.c.data(), t.shape.n, false});
}

#ifdef CATAMOUNT_BENCH_OPENBLAS
void widen(const std::uint16_t* __restrict from, int64_t ld, int64_t rows, int64_t cols,
           float* __restrict to) {
  for (int64_t r = 0; r < rows; ++r, from += ld, to += cols) {
    int64_t i = 0;
    for (; i + 16 <= cols; i += 16) {
      for (int64_t j = i; j < i + 16; ++j) {
        to[j] = std::bit_cast<float>(static_cast<std::uint32_t>(from[j]) << 16);
      }
    }
    for (; i < cols; ++i) {
      to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i]) << 16);
    }
  }
}

void run_openblas(Tile& t) {
  const auto [m, n, k] = t.shape;
  thread_local std::vector<float> a, b;
  a.resize(static_cast<std::size_t>(m * kGemmBlockK));
  b.resize(static_cast<std::size_t>(n * kGemmBlockK));
  const bool ta = t.a_transposed(), tb = t.b_transposed();
  for (int64_t k0 = 0; k0 < k; k0 += kGemmBlockK) {
    const int64_t kb = std::min(kGemmBlockK, k - k0);
    const int64_t lda = ta ? m : kb, ldb = tb ? kb : n;
    widen(t.a.data() + (ta ? k0 * m : k0), t.lda(), ta ? kb : m, lda, a.data());
    widen(t.b.data() + (tb ? k0 : k0 * n), t.ldb(), tb ? n : kb, ldb, b.data());
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                static_cast<int>(m), static_cast<int>(n), static_cast<int>(kb), 1.0F, a.data(),
                static_cast<int>(lda), b.data(), static_cast<int>(ldb), k0 > 0 ? 1.0F : 0.0F,
                t.c.data(), static_cast<int>(n));
  }
}
#endif

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// The primitive is made in the first, untimed round.
void run_matmul(Tile& t) {
  using dnnl::memory;
  thread_local const Tile* made_for = nullptr;
  thread_local dnnl::matmul matmul;
  thread_local memory a, b, c;
  thread_local dnnl::stream stream(cpu_engine());
  if (made_for != &t) {
    const auto [m, n, k] = t.shape;
    using Strides = memory::dims;
    constexpr auto kBf16 = memory::data_type::bf16;
    const memory::desc da({m, k}, kBf16, t.a_transposed() ? Strides{1, m} : Strides{k, 1});
    const memory::desc db({k, n}, kBf16, t.b_transposed() ? Strides{1, k} : Strides{n, 1});
    const memory::desc dc({m, n}, memory::data_type::f32, Strides{n, 1});
#if DNNL_VERSION_MAJOR >= 3
    matmul = dnnl::matmul({cpu_engine(), da, db, dc});
#else
    matmul = dnnl::matmul({dnnl::matmul::desc(da, db, dc), cpu_engine()});
#endif
    a = memory(da, cpu_engine(), t.a.data());
    b = memory(db, cpu_engine(), t.b.data());
    c = memory(dc, cpu_engine(), t.c.data());
    made_for = &t;
  }
  matmul.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
  stream.wait();
}

struct Candidate {
  const char* name;
  void (*run)(Tile&);
};

constexpr Candidate kCandidates[] = {
    {"catamount", run_catamount},
#ifdef CATAMOUNT_BENCH_OPENBLAS
    {"OpenBLAS", run_openblas},
#endif
    {"oneDNN bf16", run_matmul},
};

// Of the calling thread: what else runs on the machine disturbs it less than it would the wall
// clock.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Median over rounds and threads; the candidates take turns, so that a slow spell of the machine
// hits all.
std::vector<double> gflops(GemmForm form, const GemmShape& shape, int num_threads, int rounds) {
  const double flops = 2.0 * static_cast<double>(shape.m * shape.n) * static_cast<double>(shape.k);
  const int repeats = std::max(1, static_cast<int>(2e8 / flops));
  const std::size_t num_candidates = std::size(kCandidates);
  std::vector<std::vector<std::vector<double>>> rates(
      static_cast<std::size_t>(num_threads), std::vector<std::vector<double>>(num_candidates));
  std::barrier in_step(num_threads);
  const auto work = [&](int thread) {
    omp_set_num_threads(1);  // for run_matmul
    Tile tile(form, shape, static_cast<unsigned>(thread));
    for (int round = 0; round <= rounds; ++round) {
      for (std::size_t i = 0; i < num_candidates; ++i) {
        in_step.arrive_and_wait();
        const double start = cpu_seconds();
        try {
          for (int r = 0; r < repeats; ++r) kCandidates[i].run(tile);
        } catch (const dnnl::error&) {
          continue;  // this machine has no such kernel: stays without a rate
        }
        const double took = cpu_seconds() - start;
        if (round > 0) {
          rates[static_cast<std::size_t>(thread)][i].push_back(flops * repeats / took * 1e-9);
        }
      }
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(num_threads));
  for (int t = 0; t < num_threads; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();

  std::vector<double> medians;
  medians.reserve(num_candidates);
  for (std::size_t i = 0; i < num_candidates; ++i) {
    std::vector<double> all;
    for (const auto& of_thread : rates) {
      all.insert(all.end(), of_thread[i].begin(), of_thread[i].end());
    }
    std::sort(all.begin(), all.end());
    medians.push_back(all.empty() ? 0.0 : all[all.size() / 2]);
  }
  return medians;
}

}  // namespace

int main(int argc, char** argv) {
  const int num_threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 21;
#ifdef CATAMOUNT_BENCH_OPENBLAS
  openblas_set_num_threads(1);
  std::printf("%s, core %s\n", openblas_get_config(), openblas_get_corename());
#endif
  const dnnl_version_t& version = *dnnl_version();
  std::printf("oneDNN %d.%d.%d; %d threads, GFLOP per CPU second (median of %d rounds)\n\n",
              version.major, version.minor, version.patch, num_threads, rounds);
  std::printf("| form | M x N x K |");
  for (const Candidate& candidate : kCandidates) std::printf(" %s |", candidate.name);
  std::printf("\n|---|---|");
  for (std::size_t i = 0; i < std::size(kCandidates); ++i) std::printf("---|");
  const char* const names[] = {"fprop", "dgrad", "wgrad"};
  for (const GemmForm form : {GemmForm::fprop, GemmForm::dgrad, GemmForm::wgrad}) {
    for (const GemmShape& s : {GemmShape{128, 256, 512}, GemmShape{128, 256, 2048},
                               GemmShape{128, 128, 7168}, GemmShape{16, 256, 2048}}) {
      std::printf("\n| %s | %d x %d x %d |", names[static_cast<int>(form)], static_cast<int>(s.m),
                  static_cast<int>(s.n), static_cast<int>(s.k));
      for (const double rate : gflops(form, s, num_threads, rounds)) {
        rate > 0 ? std::printf(" %.1f |", rate) : std::printf(" - |");
      }
      std::fflush(stdout);
    }
  }
  std::printf("\n");
}
