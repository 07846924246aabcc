// CUDA passes as callers meet them: captured and replayed, refused, timed out, on adopted heaps and
// on several GPUs.
#include <limits>

#include "device_layer.h"
#include "layer_cases.h"

namespace catamount::test {
namespace {

using model::LayerCase;
using model::LayerCaseOptions;

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

class CudaPass : public GpuTest {};

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

TEST_F(CudaPass, ReplaysOfOneGraphFollowNewRoutingAndTokens) {
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

TEST_F(CudaPass, BadIdsAreErrorsAndTheNextPassIsFine) {
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

TEST_F(CudaPass, AdoptedHeapsSeeNothingButTheHeap) {
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

TEST_F(CudaPass, WithheldRankIsATimeoutThatNamesIt) {
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

TEST_F(CudaPass, HostPointersAreNamed) {
  LayerCase layer(base_case());
  const auto peers = peers_for(layer.config());
  DeviceLayer device(layer);
  device.args()[1].weights.down = layer.forward_args()[1].weights.down;
  expect_error(ErrorCode::invalid_argument, "rank 1: down must be device memory",
               [&] { device.start(*peers); });
}

TEST_F(CudaPass, MisalignedTensorsAreNamed) {
  LayerCase layer(base_case());
  const auto peers = peers_for(layer.config());
  DeviceLayer device(layer);
  auto& x = device.args()[0].x;
  x.data = static_cast<const std::byte*>(x.data) + 2;
  expect_error(ErrorCode::invalid_argument, "rank 0: x must be aligned to 16 bytes",
               [&] { device.start(*peers); });
}

TEST_F(CudaPass, WhatIsNotThereSaysSo) {
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

// One rank a GPU. Needs two GPUs at least.
TEST_F(CudaPass, RanksOnSeveralGpus) {
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

TEST_F(CudaPass, DevicePeersRefuseWhatCannotBe) {
  const int twice[] = {0, 0};
  expect_error(ErrorCode::invalid_argument, "virtual peers share a GPU",
               [&] { make_device_peers(twice, 1 << 20); });
  const int missing[] = {0, 77};
  expect_error(ErrorCode::not_available, "GPU 77 does not exist",
               [&] { make_device_peers(missing, 1 << 20); });
}

}  // namespace
}  // namespace catamount::test
