// Times forward passes on one GPU, from x and topk_idx to out, against cuBLASLt's dense GEMMs of
// the same size, in the same run and in turns. One JSON object a line, to standard output.
//
//   bench_forward [--filter TEXT] [--repeats N] [--cold] [--date D] [--commit C] [--list]
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "dense_gemm.h"
#include "device_tensors.h"

namespace catamount::bench {
namespace {

struct Options {
  std::string filter;
  int repeats = 20;
  bool cold = false;
  bool list = false;
  std::string date, commit = "unknown";
};

struct Times {
  std::vector<float> ms;

  float median() {
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2];
  }
};

struct Stream {
  cudaStream_t handle = nullptr;
  Stream() {
    cuda::check_cuda(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "a stream");
  }
  ~Stream() { cudaStreamDestroy(handle); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

class Timer {
 public:
  Timer(cudaStream_t stream, bool cold) : stream_(stream) {
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
    if (cold) flush_ = cuda::allocate_device<std::byte>(kFlush, "memory that flushes the L2 cache");
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  template <class Work>
  void time(const Work& work, Times* times) {
    if (flush_) cudaMemsetAsync(flush_.get(), 1, kFlush, stream_);
    cudaEventRecord(begin_, stream_);
    work();
    cudaEventRecord(end_, stream_);
    cuda::check_cuda(cudaEventSynchronize(end_), "timing");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin_, end_);
    times->ms.push_back(ms);
  }

 private:
  static constexpr std::size_t kFlush = std::size_t{256} << 20;

  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cuda::DevicePointer<std::byte> flush_;
};

// A captured pass: what is timed is the GPU's work, not the launches.
class CapturedForward {
 public:
  CapturedForward(PeerMemory& peers, const BenchCase& c, const std::vector<ForwardArgs>& args,
                  cudaStream_t stream) {
    cuda::check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    forward(peers, c.config, args, catamount::Stream{stream});
    cudaGraph_t graph = nullptr;
    cuda::check_cuda(cudaStreamEndCapture(stream, &graph), "capture");
    cuda::check_cuda(cudaGraphInstantiate(&exec_, graph, 0), "capture");
    cudaGraphDestroy(graph);
  }
  ~CapturedForward() { cudaGraphExecDestroy(exec_); }
  CapturedForward(const CapturedForward&) = delete;
  CapturedForward& operator=(const CapturedForward&) = delete;

  void launch(cudaStream_t stream) const {
    cuda::check_cuda(cudaGraphLaunch(exec_, stream), "launching a pass");
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

struct Machine {
  std::string gpu, driver;
};
Machine machine() {
  cudaDeviceProp properties{};
  cuda::check_cuda(cudaGetDeviceProperties(&properties, 0), "looking for a GPU",
                   ErrorCode::not_available);
  int version = 0;
  cudaDriverGetVersion(&version);
  return {properties.name, fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10)};
}

void print_result(const BenchCase& c, const Options& options, Times ours, Times dense) {
  const Machine here = machine();
  const double median = ours.median();
  const double reference = dense.median();
  const nlohmann::ordered_json line = {{"date", options.date},
                                       {"commit", options.commit},
                                       {"gpu", here.gpu},
                                       {"driver", here.driver},
                                       {"case", c.name},
                                       {"pass", "forward"},
                                       {"precision", "bf16"},
                                       {"ep", c.config.ep_size},
                                       {"variant", c.variant + (options.cold ? "+cold" : "")},
                                       {"median_ms", median},
                                       {"min_ms", ours.ms.front()},
                                       {"max_ms", ours.ms.back()},
                                       {"tflops", c.flops() / median / 1e9},
                                       {"reference", "dense"},
                                       {"reference_ms", reference},
                                       {"ratio", reference / median}};
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

void run_case(const BenchCase& c, const Options& options, cublasLtHandle_t cublas) {
  const MoeConfig& config = c.config;
  DeviceTensors tensors(c);
  const auto peers = make_virtual_peers(config.ep_size, heap_bytes(config));
  const Stream stream;
  const CapturedForward ours(*peers, c, tensors.args(), stream.handle);

  const std::int64_t h = config.hidden;
  const std::int64_t i = config.intermediate;
  const DenseGemm gate_up(cublas, c.rows(), 2 * i, h);
  const DenseGemm down(cublas, c.rows(), h, i);
  const TensorView x = tensors.random({c.rows(), h}, 1);
  const TensorView pre = tensors.random({c.rows(), 2 * i}, 1);
  const TensorView act = tensors.random({c.rows(), i}, 1);
  const TensorView y = tensors.random({c.rows(), h}, 1);
  const TensorView w1 = tensors.random({2 * i, h}, h);
  const TensorView w2 = tensors.random({h, i}, i);
  cuda::check_cuda(cudaDeviceSynchronize(), "filling tensors");

  Timer timer(stream.handle, options.cold);
  Times our_times;
  Times dense_times;
  constexpr int kWarmUp = 3;
  for (int n = 0; n < kWarmUp + options.repeats; ++n) {
    if (n == kWarmUp) our_times = dense_times = {};
    timer.time([&] { ours.launch(stream.handle); }, &our_times);
    timer.time(
        [&] {
          gate_up.run(x.data, w1.data, pre.data, stream.handle);
          down.run(act.data, w2.data, y.data, stream.handle);
        },
        &dense_times);
  }
  synchronize(*peers, catamount::Stream{stream.handle});
  print_result(c, options, std::move(our_times), std::move(dense_times));
}

void list_cases() {
  for (const BenchCase& c : bench_cases()) {
    const nlohmann::ordered_json line = {{"case", c.name},
                                         {"variant", c.variant},
                                         {"tokens", c.config.max_tokens},
                                         {"hidden", c.config.hidden},
                                         {"intermediate", c.config.intermediate},
                                         {"experts", c.config.num_experts},
                                         {"topk", c.config.topk},
                                         {"biases", c.biases},
                                         {"ep", c.config.ep_size},
                                         {"saved", c.save}};
    fmt::print("{}\n", line.dump());
  }
}

int run(const Options& options) {
  if (options.list) {
    list_cases();
    return 0;
  }
  cublasLtHandle_t cublas = nullptr;
  check_cublas(cublasLtCreate(&cublas));
  int failed = 0;
  for (const BenchCase& c : bench_cases()) {
    const std::string name = c.name + "/" + c.variant;
    if (name.find(options.filter) == std::string::npos) continue;
    try {
      run_case(c, options, cublas);
    } catch (const Error& e) {
      fmt::print(stderr, "{}: {}\n", name, e.what());
      ++failed;
    }
  }
  cublasLtDestroy(cublas);
  return failed > 0 ? 1 : 0;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof(text), "%Y-%m-%d", std::gmtime(&now));
  return text;
}

}  // namespace
}  // namespace catamount::bench

int main(int argc, char** argv) {
  catamount::bench::Options options;
  options.date = catamount::bench::today();
  CLI::App app("Times forward passes on one GPU");
  app.add_option("--filter", options.filter, "only cases whose CASE/VARIANT contains this");
  app.add_option("--repeats", options.repeats, "timed passes of each case")
      ->check(CLI::PositiveNumber);
  app.add_flag("--cold", options.cold, "flush the L2 cache before each pass");
  app.add_flag("--list", options.list, "print the cases and stop");
  app.add_option("--date", options.date, "for the results; today");
  app.add_option("--commit", options.commit, "for the results");
  CLI11_PARSE(app, argc, argv);
  try {
    return catamount::bench::run(options);
  } catch (const catamount::Error& e) {
    fmt::print(stderr, "bench_forward: {}\n", e.what());
    return 1;
  }
}
