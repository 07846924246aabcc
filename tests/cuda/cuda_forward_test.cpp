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

}  // namespace
}  // namespace catamount::test
