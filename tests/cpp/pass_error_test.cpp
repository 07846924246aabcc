// What goes wrong in a pass: bad arguments, bad ids, ranks that never come. An Error each time,
// nothing written, and the same peers work afterwards.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "layer_cases.h"

namespace catamount::test {
namespace {

using model::LayerCase;

std::string error_of(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "expected an Error";
  return "";
}

struct Fixture {
  LayerCase layer;
  std::unique_ptr<PeerMemory> peers;

  explicit Fixture(const model::LayerCaseOptions& options = base_case())
      : layer(options),
        peers(make_thread_peers(layer.config().ep_size, heap_bytes(layer.config()))) {}

  void expect_works() {
    layer.poison(*peers);
    layer.run_forward(*peers);
    for (const auto& c : layer.compare_forward()) EXPECT_TRUE(c.ok()) << c.name;
    layer.run_backward(*peers);
    for (const auto& c : layer.compare_backward()) EXPECT_TRUE(c.ok()) << c.name;
  }
};

struct BadForward {
  const char* name;
  std::function<void(ForwardArgs&)> spoil;  // of rank 1
  std::vector<const char*> message;
};

class ForwardArguments : public testing::TestWithParam<BadForward> {};

TEST_P(ForwardArguments, AreCheckedBeforeAnythingIsWritten) {
  Fixture f;
  f.layer.poison_outputs();
  const std::uint64_t before = f.layer.forward_checksum();
  std::vector<ForwardArgs> args = f.layer.forward_args();
  GetParam().spoil(args[1]);
  const std::string text =
      error_of([&] { forward(*f.peers, f.layer.config(), args); }, ErrorCode::invalid_argument);
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  for (const char* part : GetParam().message) EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(f.layer.forward_checksum(), before);
  f.expect_works();
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ForwardArguments,
    testing::Values(
        BadForward{"x_dtype",
                   [](ForwardArgs& a) { a.x.dtype = DType::f32; },
                   {"x must be bf16[41, 72]", "f32[41, 72]"}},
        BadForward{"x_shape", [](ForwardArgs& a) { a.x.shape[1] = 64; }, {"x must be", "64"}},
        BadForward{"x_dims",
                   [](ForwardArgs& a) {
                     a.x = {a.x.data, DType::bf16, {41}};
                   },
                   {"bf16[T, 72]", "bf16[41]"}},
        BadForward{"x_null", [](ForwardArgs& a) { a.x.data = nullptr; }, {"x", "null"}},
        BadForward{"too_many_tokens",
                   [](ForwardArgs& a) { a.x.shape[0] = 61; },
                   {"61", "max_tokens", "60"}},
        BadForward{"idx_dtype",
                   [](ForwardArgs& a) { a.topk_idx.dtype = DType::f32; },
                   {"topk_idx", "i32 or i64[41, 2]"}},
        BadForward{"weights_shape",
                   [](ForwardArgs& a) { a.topk_weights.shape[1] = 3; },
                   {"topk_weights", "f32[41, 2]", "f32[41, 3]"}},
        BadForward{
            "no_gate", [](ForwardArgs& a) { a.weights.gate_up = {}; }, {"gate must be", "absent"}},
        BadForward{"both_forms",
                   [](ForwardArgs& a) { a.weights.gate = a.weights.gate_up; },
                   {"gate must be absent", "fused"}},
        BadForward{"down_shape",
                   [](ForwardArgs& a) { a.weights.down.shape[2] = 8; },
                   {"down must be bf16[4, 72, 200]"}},
        BadForward{"half_of_the_biases",
                   [](ForwardArgs& a) {
                     a.weights.bias_down = {a.x.data, DType::bf16, {4, 72}};
                   },
                   {"bias_gate", "absent"}},
        BadForward{"unwanted_shared",
                   [](ForwardArgs& a) { a.weights.shared_down = a.x; },
                   {"shared_down must be absent"}},
        BadForward{"out_shape", [](ForwardArgs& a) { a.out.shape[0] = 40; }, {"out must be"}},
        BadForward{"saved_too_small",
                   [](ForwardArgs& a) { a.saved.bytes -= 1; },
                   {"saved must have at least"}},
        BadForward{"misaligned",
                   [](ForwardArgs& a) { a.x.data = static_cast<const std::byte*>(a.x.data) + 1; },
                   {"x is not aligned"}}),
    [](const auto& test) { return test.param.name; });

TEST(BackwardArguments, AreChecked) {
  Fixture f;
  f.layer.run_forward(*f.peers);
  const auto expect = [&](const std::function<void(BackwardArgs&)>& spoil, const char* part) {
    std::vector<BackwardArgs> args = f.layer.backward_args();
    spoil(args[0]);
    const std::string text =
        error_of([&] { backward(*f.peers, f.layer.config(), args); }, ErrorCode::invalid_argument);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect([](BackwardArgs& a) { a.dy.dtype = DType::f32; }, "dy must be");
  expect([](BackwardArgs& a) { a.dx.shape[0] = 1; }, "dx must be");
  expect([](BackwardArgs& a) { a.saved.data = nullptr; }, "saved");
  expect([](BackwardArgs& a) { a.grads.down.tensor.dtype = DType::i32; }, "grads.down");
  expect([](BackwardArgs& a) { a.grads.bias_down = a.grads.down; }, "its weight is absent");
  std::vector<std::byte> never_filled(saved_bytes(f.layer.config()));
  expect(
      [&](BackwardArgs& a) {
        a.saved = {never_filled.data(), never_filled.size()};
      },
      "not filled by a forward");
  f.expect_works();
}

// Gradients nobody wants may be left out.
TEST(BackwardArguments, AbsentGradientsAreSkipped) {
  Fixture f;
  f.layer.run_forward(*f.peers);
  f.layer.run_backward(*f.peers);
  const auto dx = f.layer.ranks()[0].dx;
  f.layer.poison_outputs();
  std::vector<BackwardArgs> args = f.layer.backward_args();
  for (BackwardArgs& a : args) a.grads = {};
  backward(*f.peers, f.layer.config(), args);
  for (std::size_t i = 0; i < dx.size(); ++i) {
    ASSERT_EQ(f.layer.ranks()[0].dx[i].bits, dx[i].bits);
  }
}

TEST(Configuration, IsChecked) {
  const auto expect = [](const std::function<void(MoeConfig&)>& spoil, const char* part) {
    MoeConfig config = base_case().config;
    config.max_tokens = 10;
    spoil(config);
    const std::string text = error_of([&] { validate(config); }, ErrorCode::invalid_argument);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect([](MoeConfig& c) { c.hidden = 0; }, "hidden");
  expect([](MoeConfig& c) { c.hidden = 12; }, "multiple of 8");
  expect([](MoeConfig& c) { c.precision = Precision::mxfp8; }, "multiple of 32");
  expect([](MoeConfig& c) { c.intermediate = -8; }, "intermediate");
  expect([](MoeConfig& c) { c.num_experts = 9; }, "num_experts");
  expect([](MoeConfig& c) { c.topk = 9; }, "topk");
  expect([](MoeConfig& c) { c.topk = 0; }, "topk");
  expect([](MoeConfig& c) { c.ep_size = 0; }, "ep_size");
  expect([](MoeConfig& c) { c.ep_size = 65; }, "ep_size");
  expect([](MoeConfig& c) { c.max_tokens = -1; }, "max_tokens");
  expect([](MoeConfig& c) { c.max_tokens = std::int64_t{1} << 40; }, "max_tokens");
  expect([](MoeConfig& c) { c.capacity_rows = -1; }, "capacity_rows");
  expect([](MoeConfig& c) { c.timeout_s = 0; }, "timeout_s");
  expect([](MoeConfig& c) { c.swiglu.limit = 0; }, "limit");
  expect([](MoeConfig& c) { c.swiglu.alpha = std::numeric_limits<float>::quiet_NaN(); }, "alpha");
  expect([](MoeConfig& c) { c.threads_per_rank = -1; }, "threads_per_rank");
}

TEST(PeerGroup, IsChecked) {
  Fixture f;
  const MoeConfig config = f.layer.config();
  const auto args = f.layer.forward_args();
  const auto small = make_thread_peers(2, heap_bytes(config) - 1);
  EXPECT_NE(error_of([&] { forward(*small, config, args); }, ErrorCode::invalid_argument)
                .find("heap_bytes"),
            std::string::npos);
  const auto three = make_thread_peers(3, heap_bytes(config));
  error_of([&] { forward(*three, config, args); }, ErrorCode::invalid_argument);
  error_of([&] { forward(*f.peers, config, std::span(args).first(1)); },
           ErrorCode::invalid_argument);
  error_of([] { make_thread_peers(0, 1 << 20); }, ErrorCode::invalid_argument);
  error_of([] { make_thread_peers(65, 1 << 20); }, ErrorCode::invalid_argument);
  error_of([] { make_thread_peers(1, 16); }, ErrorCode::invalid_argument);
}

TEST(Routing, OutOfRangeIdsWriteNothing) {
  for (const std::int32_t bad : {-2, 8, 1 << 30, std::numeric_limits<std::int32_t>::min()}) {
    Fixture f;
    f.layer.poison_outputs();
    const std::uint64_t before = f.layer.forward_checksum();
    std::vector<std::int32_t>& ids = f.layer.ranks()[1].topk_idx;
    const std::int32_t good = ids[5];
    ids[5] = bad;
    const std::string text =
        error_of([&] { f.layer.run_forward(*f.peers); }, ErrorCode::invalid_routing);
    EXPECT_NE(text.find("topk_idx[2, 1] of rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(bad)), std::string::npos) << text;
    EXPECT_EQ(f.layer.forward_checksum(), before);
    ids[5] = good;
    f.expect_works();
  }
}

// A rank that never calls: the others end in an Error that names it, within the time allowed.
TEST(Timeout, NamesTheRankThatNeverCame) {
  model::LayerCaseOptions options = base_case();
  options.config.ep_size = 4;
  options.tokens = {5, 6, 7, 8};
  options.config.timeout_s = 0.3;
  LayerCase layer(options);
  const auto handles = make_thread_peer_handles(4, heap_bytes(layer.config()));
  const auto args = layer.forward_args();
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> messages(3);
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < 3; ++r) {
      threads.emplace_back([&, r] {
        try {
          forward(*handles[r], layer.config(), std::span(args).subspan(r, 1));
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::timeout);
          messages[r] = error.what();
        }
      });
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 20.0);
  bool named = false;
  for (const std::string& m : messages) {
    EXPECT_FALSE(m.empty());
    named = named || (m.find("first barrier for rank 3") != std::string::npos &&
                      m.find("expected pass 1, saw 0") != std::string::npos);
  }
  EXPECT_TRUE(named) << messages[0];

  // After reset the same group works, each rank from a thread of its own.
  handles[0]->reset();
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < 4; ++r) {
      threads.emplace_back(
          [&, r] { forward(*handles[r], layer.config(), std::span(args).subspan(r, 1)); });
    }
  }
  for (const auto& c : layer.compare_forward()) EXPECT_TRUE(c.ok());
}

// A rank that comes late is waited for; passes follow each other without the ranks meeting outside.
TEST(Timeout, LateRanksAreWaitedFor) {
  model::LayerCaseOptions options = base_case();
  options.config.shared_intermediate = 40;
  LayerCase layer(options);
  const auto handles = make_thread_peer_handles(2, heap_bytes(layer.config()));
  const auto fwd = layer.forward_args();
  const auto bwd = layer.backward_args();
  const auto run = [&](std::size_t r, int delay_ms) {
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
      forward(*handles[r], layer.config(), std::span(fwd).subspan(r, 1));
      backward(*handles[r], layer.config(), std::span(bwd).subspan(r, 1));
    }
  };
  {
    std::jthread late([&] { run(1, 20); });
    run(0, 0);
  }
  for (const auto& c : layer.compare_forward()) EXPECT_TRUE(c.ok());
  for (const auto& c : layer.compare_backward()) EXPECT_TRUE(c.ok());
}

}  // namespace
}  // namespace catamount::test
