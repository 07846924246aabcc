// The CUDA forward against the oracle over the case list of every backend, and what must hold of
// every pass.
#include <cmath>
#include <cstring>
#include <limits>

#include "device_layer.h"
#include "layer_cases.h"

namespace catamount::test {
namespace {

using model::LayerCase;
using model::LayerCaseOptions;

std::unique_ptr<PeerMemory> peers_for(const MoeConfig& config) {
  return make_virtual_peers(config.ep_size, heap_bytes(config));
}

void expect_ok(const std::vector<model::NamedComparison>& all) {
  for (const model::NamedComparison& c : all) {
    EXPECT_TRUE(c.ok()) << c.name << ": relative error " << c.comparison.relative_error << " > "
                        << c.bound << ", non-finite mismatches "
                        << c.comparison.nonfinite_mismatches;
    EXPECT_EQ(c.comparison.missing, 0) << c.name;
  }
}

template <class Call>
void expect_error(ErrorCode code, const std::string& text, const Call& call) {
  try {
    call();
    ADD_FAILURE() << "expected an Error saying '" << text << "'";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

std::vector<NamedCase> bf16_cases() {
  std::vector<NamedCase> all;
  for (NamedCase& c : layer_cases()) {
    if (c.options.config.precision == Precision::bf16) all.push_back(std::move(c));
  }
  // Sizes with several tiles along every axis, and the widths of a real model.
  all.push_back(make_case("tiles", [](LayerCaseOptions& o) {
    o.config.hidden = 584;
    o.config.intermediate = 456;
    o.config.num_experts = 4;
    o.config.shared_intermediate = 200;
    o.biases = true;
    o.tokens = {700, 300};
  }));
  all.push_back(make_case("gpt_oss_widths", [](LayerCaseOptions& o) {
    o.config.hidden = 2880;
    o.config.intermediate = 2880;
    o.config.num_experts = 2;
    o.config.swiglu = {1.702F, 7.0F, 1.0F};
    o.biases = true;
    o.tokens = {9, 5};
  }));
  return all;
}

class CudaLayer : public GpuTest, public testing::WithParamInterface<NamedCase> {};

TEST_P(CudaLayer, AgreesWithTheOracleAndRepeats) {
  LayerCase layer(GetParam().options);
  const auto peers = peers_for(layer.config());
  DeviceLayer device(layer);
  device.poison(*peers);
  device.run(*peers);
  expect_ok(layer.compare_forward());
  const std::uint64_t bits = layer.forward_checksum();
  device.poison(*peers);
  device.run(*peers);
  EXPECT_EQ(layer.forward_checksum(), bits);
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaLayer, testing::ValuesIn(bf16_cases()),
                         [](const auto& test) { return test.param.name; });

class CudaRule : public GpuTest {};

// Weights of ranks and rows travel on different ways, but what is added up is the same.
TEST_F(CudaRule, SameBitsOnAnyNumberOfRanks) {
  std::vector<std::uint64_t> sums;
  for (const int ranks : {1, 2, 4, 8}) {
    LayerCaseOptions options = base_case();
    options.config.ep_size = ranks;
    options.tokens = same_tokens(ranks, 0);
    options.tokens[0] = 300;  // the other ranks only compute
    LayerCase layer(options);
    const auto peers = peers_for(layer.config());
    DeviceLayer device(layer);
    device.poison(*peers);
    device.run(*peers);
    sums.push_back(layer.forward_checksum());
  }
  for (const std::uint64_t sum : sums) EXPECT_EQ(sum, sums[0]);
}

TEST_F(CudaRule, HundredRunsGiveTheSameBits) {
  LayerCaseOptions options = base_case();
  options.config.hidden = 264;
  options.config.shared_intermediate = 72;
  options.config.capacity_rows = 512;
  options.tokens = {700, 900};
  LayerCase layer(options);
  const auto peers = peers_for(layer.config());
  DeviceLayer device(layer);
  device.run(*peers);
  const std::uint64_t bits = layer.forward_checksum();
  for (int i = 0; i < 100; ++i) {
    device.poison_outputs();
    device.run(*peers);
    ASSERT_EQ(layer.forward_checksum(), bits) << "run " << i;
  }
}

TEST_F(CudaRule, ReservedSmsDoNotChangeTheBits) {
  std::vector<std::uint64_t> sums;
  for (const auto& [reserve, comm] :
       std::vector<std::pair<int, int>>{{0, 0}, {64, 0}, {128, 0}, {0, 1}, {0, 20}, {60, 10}}) {
    LayerCaseOptions options = base_case();
    options.config.reserve_sms = reserve;
    options.config.comm_sms = comm;
    options.tokens = {400, 300};
    LayerCase layer(options);
    const auto peers = peers_for(layer.config());
    DeviceLayer device(layer);
    device.poison(*peers);
    device.run(*peers);
    sums.push_back(layer.forward_checksum());
  }
  for (const std::uint64_t sum : sums) EXPECT_EQ(sum, sums[0]);
}

TEST_F(CudaRule, NanStaysInItsToken) {
  LayerCaseOptions options = base_case();
  options.config.shared_intermediate = 64;
  LayerCase layer(options);
  const std::int64_t hidden = layer.config().hidden;
  const std::int64_t token = 5;
  layer.ranks()[1].x[static_cast<std::size_t>(token * hidden + 3)] = Bf16{0x7fc0};
  const auto peers = peers_for(layer.config());
  DeviceLayer device(layer);
  device.poison(*peers);
  device.run(*peers);
  for (std::size_t r = 0; r < 2; ++r) {
    const model::RankTensors& rank = layer.ranks()[r];
    for (std::int64_t i = 0; i < rank.tokens * hidden; ++i) {
      const float value = to_float(rank.out[static_cast<std::size_t>(i)]);
      ASSERT_EQ(std::isnan(value), r == 1 && i / hidden == token) << r << " " << i;
    }
  }
}

// Captures one pass.
class Graph {
 public:
  template <class Work>
  Graph(cudaStream_t stream, const Work& work) : stream_(stream) {
    cuda::check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    work();
    cudaGraph_t graph = nullptr;
    cuda::check_cuda(cudaStreamEndCapture(stream, &graph), "capture");
    cuda::check_cuda(cudaGraphGetNodes(graph, nullptr, &num_nodes_), "capture");
    cuda::check_cuda(cudaGraphInstantiate(&exec_, graph, 0), "capture");
    cudaGraphDestroy(graph);
  }
  ~Graph() { cudaGraphExecDestroy(exec_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::size_t num_nodes() const { return num_nodes_; }
  void replay() { cuda::check_cuda(cudaGraphLaunch(exec_, stream_), "replay"); }

 private:
  cudaStream_t stream_;
  std::size_t num_nodes_ = 0;
  cudaGraphExec_t exec_ = nullptr;
};

struct TestStream {
  cudaStream_t handle = nullptr;
  TestStream() { cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking); }
  ~TestStream() { cudaStreamDestroy(handle); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
};

TEST_F(CudaRule, ReplaysOfOneGraphFollowNewRoutingAndTokens) {
  LayerCaseOptions options = base_case();
  options.config.capacity_rows = 256;
  options.tokens = {150, 90};
  LayerCase layer(options);
  const auto peers = peers_for(layer.config());
  DeviceLayer device(layer);
  TestStream stream;
  std::unique_ptr<Graph> graph;
  graph =
      std::make_unique<Graph>(stream.handle, [&] { device.start(*peers, Stream{stream.handle}); });
  EXPECT_LE(graph->num_nodes(), 2U);
  const char* const routings[] = {"uniform", "hot:1", "zipf:1.5", "empty-rank", "hot:3"};
  for (int round = 0; round < 20; ++round) {
    options.seed = static_cast<std::uint64_t>(round);
    options.routing = model::parse_routing_spec(routings[round % 5]);
    options.routing.masked = round % 3 == 0 ? 0.3 : 0.0;
    LayerCase fresh(options);
    for (int r = 0; r < 2; ++r) {
      const model::RankTensors& from = fresh.ranks()[static_cast<std::size_t>(r)];
      layer.set_routing(r, {from.topk_idx, from.topk_weights});
      layer.set_hidden(r, from.x);
    }
    device.upload_inputs();
    device.poison_outputs();
    cudaDeviceSynchronize();
    for (int i = 0; i < 200; ++i) graph->replay();
    synchronize(*peers, Stream{stream.handle});
    device.fetch();
    expect_ok(layer.compare_forward());
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST_F(CudaRule, BadIdsAreErrorsAndTheNextPassIsFine) {
  for (const std::int32_t bad : {-2, 8, std::numeric_limits<std::int32_t>::max()}) {
    LayerCase layer(base_case());
    const auto peers = peers_for(layer.config());
    DeviceLayer device(layer);
    const std::vector<std::int32_t> good = layer.ranks()[1].topk_idx;
    layer.ranks()[1].topk_idx[31] = bad;
    layer.ranks()[1].topk_idx[44] = bad;
    device.upload_inputs();
    device.poison(*peers);
    const std::string text =
        "topk_idx[15, 1] of rank 1 must be in [-1, 8), got " + std::to_string(bad);
    device.start(*peers);
    expect_error(ErrorCode::invalid_routing, text, [&] { synchronize(*peers); });
    device.fetch();  // nobody has written
    for (const model::RankTensors& rank : layer.ranks()) {
      for (const Bf16 v : rank.out) ASSERT_EQ(v.bits, 0xFFFF);
    }
    device.start(*peers);
    cudaDeviceSynchronize();
    expect_error(ErrorCode::invalid_routing, text, [&] { device.start(*peers); });
    layer.ranks()[1].topk_idx = good;
    device.upload_inputs();
    device.run(*peers);
    expect_ok(layer.compare_forward());
  }
}

// Two ranks as two processes would run them: each with its own handle, on its own stream.
class AdoptedPair {
 public:
  explicit AdoptedPair(const MoeConfig& config) {
    const std::size_t bytes = heap_bytes(config);
    void* const bases[2] = {arena_.allocate(bytes), arena_.allocate(bytes)};
    for (int r = 0; r < 2; ++r) handles.push_back(make_adopted_peers(r, bases, bytes));
  }

  std::vector<std::unique_ptr<PeerMemory>> handles;
  TestStream streams[2];

 private:
  DeviceArena arena_;
};

LayerCaseOptions adopted_case() {
  LayerCaseOptions options = base_case();
  options.config.reserve_sms = 70;  // both ranks' kernels must be resident
  return options;
}

TEST_F(CudaRule, AdoptedHeapsSeeNothingButTheHeap) {
  LayerCase layer(adopted_case());
  AdoptedPair pair(layer.config());
  DeviceLayer device(layer);
  for (int round = 0; round < 3; ++round) {
    device.poison_outputs();
    cudaDeviceSynchronize();
    for (std::size_t r = 0; r < 2; ++r) {
      forward(*pair.handles[r], layer.config(), std::span(device.args()).subspan(r, 1),
              Stream{pair.streams[r].handle});
    }
    for (std::size_t r = 0; r < 2; ++r) {
      synchronize(*pair.handles[r], Stream{pair.streams[r].handle});
    }
    device.fetch();
    expect_ok(layer.compare_forward());
  }
}

TEST_F(CudaRule, WithheldRankIsATimeoutThatNamesIt) {
  LayerCaseOptions options = adopted_case();
  options.config.timeout_s = 0.2;
  LayerCase layer(options);
  AdoptedPair pair(layer.config());
  DeviceLayer device(layer);
  const auto start = [&](std::size_t r) {
    forward(*pair.handles[r], layer.config(), std::span(device.args()).subspan(r, 1),
            Stream{pair.streams[r].handle});
  };
  start(0);
  expect_error(
      ErrorCode::timeout,
      "rank 0: routing waited 0.2 s at the first barrier for rank 1: expected pass 1, saw 0",
      [&] { synchronize(*pair.handles[0], Stream{pair.streams[0].handle}); });
  for (const auto& handle : pair.handles) handle->reset();
  start(0);
  start(1);
  for (std::size_t r = 0; r < 2; ++r) {
    synchronize(*pair.handles[r], Stream{pair.streams[r].handle});
  }
  device.fetch();
  expect_ok(layer.compare_forward());
}

TEST_F(CudaRule, HostPointersAreNamed) {
  LayerCase layer(base_case());
  const auto peers = peers_for(layer.config());
  DeviceLayer device(layer);
  device.args()[1].weights.down = layer.forward_args()[1].weights.down;
  expect_error(ErrorCode::invalid_argument, "rank 1: down must be device memory",
               [&] { device.start(*peers); });
}

TEST_F(CudaRule, MisalignedTensorsAreNamed) {
  LayerCase layer(base_case());
  const auto peers = peers_for(layer.config());
  DeviceLayer device(layer);
  auto& x = device.args()[0].x;
  x.data = static_cast<const std::byte*>(x.data) + 2;
  expect_error(ErrorCode::invalid_argument, "rank 0: x must be aligned to 16 bytes",
               [&] { device.start(*peers); });
}

TEST_F(CudaRule, WhatIsNotThereSaysSo) {
  LayerCaseOptions options = base_case();
  options.config.hidden = options.config.intermediate = 64;
  LayerCase layer(options);
  const auto peers = peers_for(layer.config());
  DeviceLayer device(layer);
  expect_error(ErrorCode::not_available, "backward", [&] { layer.run_backward(*peers); });
  MoeConfig config = layer.config();
  config.precision = Precision::mxfp8;
  const auto wide = make_virtual_peers(2, heap_bytes(config));
  for (ForwardArgs& a : device.args()) a.saved = {};
  expect_error(ErrorCode::not_available, "FP8", [&] { forward(*wide, config, device.args()); });
  config = layer.config();
  config.comm_sms = 100;
  expect_error(ErrorCode::invalid_argument, "too few",
               [&] { forward(*peers, config, device.args()); });
}

// Backward on the CPU from what the GPU kept. The clamp is tight, so that many pre-activations lie
// on its edge, where rounding must not move them across.
TEST_F(CudaRule, SavedHoldsWhatTheCpuBackendSaves) {
  for (const Swiglu& swiglu : {Swiglu{}, Swiglu{1.702F, 0.5F, 1.0F}}) {
    LayerCaseOptions options = base_case();
    options.config.keep = Keep::pre_activations_and_x;
    options.config.shared_intermediate = 64;
    options.config.swiglu = swiglu;
    LayerCase layer(options);
    const auto peers = peers_for(layer.config());
    DeviceLayer device(layer);
    device.poison(*peers);
    device.run(*peers);
    const auto cpu = make_thread_peers(2, heap_bytes(layer.config()));
    layer.run_forward(*cpu);
    for (std::size_t r = 0; r < 2; ++r) {
      const SavedBuffer& saved = device.args()[r].saved;
      layer.ranks()[r].saved = download(static_cast<const std::byte*>(saved.data), saved.bytes);
    }
    layer.run_backward(*cpu);
    expect_ok(layer.compare_backward());
  }
}

// One rank a GPU. Needs two GPUs at least.
TEST_F(CudaRule, RanksOnSeveralGpus) {
  const int gpus = num_gpus();
  if (gpus < 2) GTEST_SKIP() << "one GPU: nothing to spread ranks over";
  LayerCaseOptions options = base_case();
  options.config.ep_size = gpus < 8 ? 2 : 8;
  options.tokens = same_tokens(options.config.ep_size, 333);
  LayerCase layer(options);
  std::vector<int> devices;
  for (int d = 0; d < options.config.ep_size; ++d) devices.push_back(d);
  const auto peers = make_device_peers(devices, heap_bytes(layer.config()));
  DeviceLayer device(layer);  // all tensors on GPU 0, which the others can read
  for (int i = 0; i < 10; ++i) {
    device.poison(*peers);
    device.run(*peers);
    expect_ok(layer.compare_forward());
  }
}

TEST_F(CudaRule, DevicePeersRefuseWhatCannotBe) {
  const int twice[] = {0, 0};
  expect_error(ErrorCode::invalid_argument, "virtual peers share a GPU",
               [&] { make_device_peers(twice, 1 << 20); });
  const int missing[] = {0, 77};
  expect_error(ErrorCode::not_available, "GPU 77 does not exist",
               [&] { make_device_peers(missing, 1 << 20); });
}

}  // namespace
}  // namespace catamount::test
