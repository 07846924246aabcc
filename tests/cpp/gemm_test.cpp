// The CPU backend's GEMM against plain loops in double, and what it promises of its bits, NaNs and
// threads.
#include "cpu/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "catamount/error.h"

extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int);
}

namespace catamount::cpu {
namespace {

using std::int64_t;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::size_t at(int64_t i) { return static_cast<std::size_t>(i); }

std::uint16_t high_half(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

// A stored matrix whose values BF16 holds exactly; NaN lies between its rows.
struct Matrix {
  int64_t rows, cols, ld;
  std::vector<float> f32;
  std::vector<std::uint16_t> bf16;

  Matrix(int64_t r, int64_t c, int64_t gap, unsigned seed)
      : rows(r), cols(c), ld(c + gap), f32(at(r * (c + gap)), kNaN), bf16(at(r * (c + gap))) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < r; ++i) {
      for (int64_t j = 0; j < c; ++j) f32[at(i * ld + j)] = normal(random);
    }
    for (std::size_t i = 0; i < f32.size(); ++i) {
      bf16[i] = high_half(f32[i]);
      f32[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bf16[i]) << 16);
    }
  }
  void set(int64_t i, int64_t j, float value) {
    f32[at(i * ld + j)] = value;
    bf16[at(i * ld + j)] = high_half(value);
  }
  double get(int64_t i, int64_t j) const { return static_cast<double>(f32[at(i * ld + j)]); }
  GemmOperand operand(DType dtype) const {
    return {dtype == DType::bf16 ? static_cast<const void*>(bf16.data()) : f32.data(), dtype, ld};
  }
};

struct Problem {
  GemmForm form;
  GemmShape shape;
  Matrix a, b;

  Problem(GemmForm f, const GemmShape& s, int64_t gap = 0, unsigned seed = 1)
      : form(f),
        shape(s),
        a(f == GemmForm::wgrad ? s.k : s.m, f == GemmForm::wgrad ? s.m : s.k, gap, seed),
        b(f == GemmForm::fprop ? s.n : s.k, f == GemmForm::fprop ? s.k : s.n, gap, seed + 1) {}

  double a_at(int64_t i, int64_t l) const {
    return form == GemmForm::wgrad ? a.get(l, i) : a.get(i, l);
  }
  double b_at(int64_t l, int64_t j) const {
    return form == GemmForm::fprop ? b.get(j, l) : b.get(l, j);
  }
  void run(float* c, int64_t ldc, bool accumulate, DType dtype_a = DType::bf16,
           DType dtype_b = DType::bf16) const {
    gemm(form, shape, a.operand(dtype_a), b.operand(dtype_b), {c, ldc, accumulate});
  }
  std::vector<float> result(DType dtype_a = DType::bf16, DType dtype_b = DType::bf16) const {
    std::vector<float> c(at(shape.m * shape.n), kNaN);
    run(c.data(), shape.n, false, dtype_a, dtype_b);
    return c;
  }
};

bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() &&
         (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
}

// |got - exact| within what FP32 sums in any order may lose.
void expect_right(const Problem& p, const std::vector<float>& c, int64_t ldc, float before) {
  for (int64_t i = 0; i < p.shape.m; ++i) {
    for (int64_t j = 0; j < p.shape.n; ++j) {
      double exact = static_cast<double>(before), size = std::abs(exact);
      for (int64_t l = 0; l < p.shape.k; ++l) {
        const double product = p.a_at(i, l) * p.b_at(l, j);
        exact += product;
        size += std::abs(product);
      }
      ASSERT_NEAR(static_cast<double>(c[at(i * ldc + j)]), exact, 2e-6 * size)
          << "row " << i << ", column " << j;
    }
  }
}

constexpr GemmForm kForms[] = {GemmForm::fprop, GemmForm::dgrad, GemmForm::wgrad};

std::string form_name(GemmForm form) {
  return form == GemmForm::fprop ? "fprop" : form == GemmForm::dgrad ? "dgrad" : "wgrad";
}

std::string problem_name(const testing::TestParamInfo<std::tuple<GemmForm, GemmShape>>& info) {
  const auto& [form, shape] = info.param;
  return form_name(form) + "_" + std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" +
         std::to_string(shape.k);
}

class Gemm : public testing::TestWithParam<std::tuple<GemmForm, GemmShape>> {};

TEST_P(Gemm, MatchesDouble) {
  const auto& [form, shape] = GetParam();
  for (const int64_t gap : {0, 5}) {
    const Problem p(form, shape, gap);
    for (const DType dtype_a : {DType::bf16, DType::f32}) {
      for (const bool accumulate : {false, true}) {
        const float before = accumulate ? 0.75F : kNaN;
        const int64_t ldc = shape.n + gap;
        std::vector<float> c(at(shape.m * ldc), before);
        p.run(c.data(), ldc, accumulate, dtype_a);
        expect_right(p, c, ldc, accumulate ? before : 0.0F);
        for (int64_t i = 0; i < shape.m; ++i) {
          for (int64_t j = shape.n; j < ldc; ++j) {
            const float kept = c[at(i * ldc + j)];
            ASSERT_TRUE(accumulate ? kept == before : std::isnan(kept)) << "wrote past row " << i;
          }
        }
      }
    }
  }
}

TEST_P(Gemm, Bf16AndFp32OperandsGiveTheSameBits) {
  const auto& [form, shape] = GetParam();
  const Problem p(form, shape, 3);
  const std::vector<float> expected = p.result();
  EXPECT_TRUE(same_bits(p.result(DType::bf16, DType::f32), expected));
  EXPECT_TRUE(same_bits(p.result(DType::f32, DType::bf16), expected));
  EXPECT_TRUE(same_bits(p.result(DType::f32, DType::f32), expected));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Gemm,
    testing::Combine(testing::ValuesIn(kForms),
                     testing::Values(GemmShape{0, 8, 8}, GemmShape{8, 0, 8}, GemmShape{3, 5, 0},
                                     GemmShape{0, 0, 0}, GemmShape{1, 1, 1}, GemmShape{1, 128, 64},
                                     GemmShape{2, 3, 5}, GemmShape{7, 129, 255},
                                     GemmShape{17, 1, 300}, GemmShape{33, 200, 72},
                                     GemmShape{127, 131, 257}, GemmShape{128, 128, 256},
                                     GemmShape{128, 256, 513}, GemmShape{257, 259, 31},
                                     GemmShape{5, 19, 2880})),
    problem_name);

class GemmOfForm : public testing::TestWithParam<GemmForm> {};

TEST_P(GemmOfForm, NanAndInfStayInTheirRowsAndColumns) {
  constexpr GemmShape kShape{37, 70, 600};
  Problem p(GetParam(), kShape);
  const bool a_turned = p.form == GemmForm::wgrad, b_turned = p.form == GemmForm::fprop;
  const auto set_a = [&](int64_t i, int64_t l, float v) {
    a_turned ? p.a.set(l, i, v) : p.a.set(i, l, v);
  };
  const auto set_b = [&](int64_t l, int64_t j, float v) {
    b_turned ? p.b.set(j, l, v) : p.b.set(l, j, v);
  };
  set_a(36, 599, kNaN);
  for (int64_t j = 0; j < kShape.n; ++j) set_b(599, j, 0.0F);  // 0 * NaN must not vanish
  set_a(4, 3, kInf);
  for (int64_t l = 0; l < kShape.k; ++l) set_b(l, 9, l == 300 ? kNaN : 1.0F);
  set_b(3, 11, 0.0F);  // 0 * Inf
  const std::vector<float> got = p.result();
  for (int64_t i = 0; i < kShape.m; ++i) {
    for (int64_t j = 0; j < kShape.n; ++j) {
      const float value = got[at(i * kShape.n + j)];
      if (i == 36 || j == 9 || (i == 4 && j == 11)) {
        EXPECT_TRUE(std::isnan(value)) << i << ", " << j;
      } else if (i == 4) {
        EXPECT_TRUE(std::isinf(value)) << i << ", " << j;
      } else {
        EXPECT_TRUE(std::isfinite(value)) << i << ", " << j;
      }
    }
  }
}

TEST_P(GemmOfForm, SubnormalsAreKept) {
  Problem p(GetParam(), {3, 20, 40});
  for (Matrix* x : {&p.a, &p.b}) {
    for (int64_t i = 0; i < x->rows; ++i) {
      for (int64_t j = 0; j < x->cols; ++j) x->set(i, j, x == &p.a ? 0x1p-130F : 1.0F);
    }
  }
  for (const float value : p.result()) EXPECT_EQ(value, 40 * 0x1p-130F);
}

TEST_P(GemmOfForm, AddressesDoNotMatter) {
  const Problem p(GetParam(), {61, 130, 700});
  const std::vector<float> expected = p.result();
  for (const unsigned shift : {1U, 3U, 7U}) {
    std::vector<std::uint16_t> a(shift + p.a.bf16.size());
    std::vector<float> b(shift + p.b.f32.size()), c(shift + expected.size());
    std::copy(p.a.bf16.begin(), p.a.bf16.end(), a.data() + shift);
    std::copy(p.b.f32.begin(), p.b.f32.end(), b.data() + shift);
    gemm(p.form, p.shape, {a.data() + shift, DType::bf16, p.a.ld},
         {b.data() + shift, DType::f32, p.b.ld}, {c.data() + shift, p.shape.n, false});
    c.erase(c.begin(), c.begin() + shift);
    EXPECT_TRUE(same_bits(c, expected)) << "shifted by " << shift << " elements";
  }
}

TEST_P(GemmOfForm, EightThreadsGiveTheSameBits) {
  constexpr int kThreads = 8, kRepeats = 3;
  const GemmShape shapes[] = {{128, 256, 515}, {1, 256, 1000}, {67, 129, 300}};
  std::vector<Problem> problems;
  std::vector<std::vector<float>> expected;
  for (const GemmShape& shape : shapes) {
    problems.emplace_back(GetParam(), shape);
    expected.push_back(problems.back().result());
  }
  std::vector<int> wrong(kThreads, 0);
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (int i = 0; i < kRepeats * 3; ++i) {
        const std::size_t which = static_cast<std::size_t>(i + t) % problems.size();
        wrong[static_cast<std::size_t>(t)] +=
            same_bits(problems[which].result(), expected[which]) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

INSTANTIATE_TEST_SUITE_P(Forms, GemmOfForm, testing::ValuesIn(kForms),
                         [](const auto& tested) { return form_name(tested.param); });

// The program's own OpenMP setting neither changes the result nor is changed, and no worker threads
// start.
TEST(GemmThreads, StaysOnItsThread) {
  const Problem p(GemmForm::fprop, {128, 256, 1024});
  const std::vector<float> expected = p.result();
  const auto count_threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const auto before = count_threads();
  const int setting = omp_get_max_threads();
  omp_set_num_threads(4);
  EXPECT_TRUE(same_bits(p.result(), expected));
  EXPECT_EQ(omp_get_max_threads(), 4);
  EXPECT_EQ(count_threads(), before);
  omp_set_num_threads(setting);
}

TEST(GemmErrors, SayWhatCame) {
  std::vector<float> x(64, 1.0F), c(64, 7.0F);
  const auto message = [&](const GemmShape& shape, const GemmOperand& a, const GemmOperand& b,
                           const GemmResult& result) -> std::string {
    try {
      gemm(GemmForm::fprop, shape, a, b, result);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "no error";
  };
  const GemmOperand good{x.data(), DType::f32, 8};
  const GemmResult out{c.data(), 8, false};
  EXPECT_NE(message({-1, 4, 4}, good, good, out).find("-1 x 4 x 4"), std::string::npos);
  EXPECT_NE(message({4, 4, 9}, good, good, out).find("A has rows of 9"), std::string::npos);
  EXPECT_NE(message({4, 4, 8}, good, {x.data(), DType::f16, 8}, out).find("got f16"),
            std::string::npos);
  EXPECT_NE(message({4, 4, 8}, good, {nullptr, DType::f32, 8}, out).find("null"),
            std::string::npos);
  EXPECT_NE(message({4, 4, 8}, good, good, {c.data(), 3, false}).find("C has rows of 4"),
            std::string::npos);
  EXPECT_EQ(c, std::vector<float>(64, 7.0F));
}

}  // namespace
}  // namespace catamount::cpu
