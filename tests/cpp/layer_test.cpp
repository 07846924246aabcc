// The CPU backend against the oracle, over the whole case list; and what must hold of every pass.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "layer_cases.h"

namespace catamount::test {
namespace {

using model::LayerCase;

std::unique_ptr<PeerMemory> peers_for(const MoeConfig& config) {
  return make_thread_peers(config.ep_size, heap_bytes(config));
}

class Layer : public testing::TestWithParam<NamedCase> {};

TEST_P(Layer, AgreesWithTheOracleAndRepeats) {
  LayerCase layer(GetParam().options);
  const auto peers = peers_for(layer.config());
  layer.poison(*peers);
  layer.run_forward(*peers);
  expect_ok(layer.compare_forward());
  layer.run_backward(*peers);
  expect_ok(layer.compare_backward());

  // Same bits again, from other garbage and another number of threads.
  const std::uint64_t forward_bits = layer.forward_checksum();
  const std::uint64_t backward_bits = layer.backward_checksum();
  model::LayerCaseOptions options = GetParam().options;
  options.config.threads_per_rank = 3;
  LayerCase again(options);
  again.run_forward(*peers);
  again.run_backward(*peers);
  EXPECT_EQ(again.forward_checksum(), forward_bits);
  EXPECT_EQ(again.backward_checksum(), backward_bits);
}

INSTANTIATE_TEST_SUITE_P(Cases, Layer, testing::ValuesIn(layer_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(LayerRule, WhatIsKeptDoesNotChangeTheBits) {
  std::uint64_t bits[3];
  for (int keep = 0; keep < 3; ++keep) {
    model::LayerCaseOptions options = base_case();
    options.config.keep = static_cast<Keep>(keep);
    options.config.shared_intermediate = 64;
    options.config.capacity_rows = 128;
    options.tokens = {300, 200};
    LayerCase layer(options);
    const auto peers = peers_for(layer.config());
    layer.poison(*peers);
    layer.run_forward(*peers);
    layer.run_backward(*peers);
    bits[keep] = layer.backward_checksum();
  }
  EXPECT_EQ(bits[0], bits[1]);
  EXPECT_EQ(bits[0], bits[2]);
}

TEST(LayerRule, InferenceKeepsNothing) {
  model::LayerCaseOptions options = base_case();
  options.config.shared_intermediate = 64;
  LayerCase with(options);
  options.save = false;
  LayerCase without(options);
  const auto peers = peers_for(with.config());
  with.run_forward(*peers);
  without.run_forward(*peers);
  EXPECT_EQ(with.forward_checksum(), without.forward_checksum());
}

// Rank count changes who computes what, not what is computed.
TEST(LayerRule, SameBitsOnAnyNumberOfRanks) {
  std::vector<std::uint64_t> sums;
  for (const int ranks : {1, 2, 4}) {
    model::LayerCaseOptions options = base_case();
    options.config.ep_size = ranks;
    options.tokens = same_tokens(ranks, 0);
    options.tokens[0] = 90;  // the other ranks only compute
    LayerCase layer(options);
    const auto peers = peers_for(layer.config());
    layer.poison(*peers);
    layer.run_forward(*peers);
    sums.push_back(layer.forward_checksum());
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

class NanToken : public testing::TestWithParam<Precision> {};

TEST_P(NanToken, StaysInItsToken) {
  model::LayerCaseOptions options = base_case();
  options.config.precision = GetParam();
  options.config.hidden = 96;
  options.config.intermediate = 160;
  options.config.shared_intermediate = 64;
  LayerCase layer(options);
  const std::int64_t hidden = layer.config().hidden;
  const std::int64_t token = 5;
  layer.ranks()[1].x[static_cast<std::size_t>(token * hidden + 3)] = Bf16{0x7fc0};
  const auto peers = peers_for(layer.config());
  layer.poison(*peers);
  layer.run_forward(*peers);
  for (std::size_t r = 0; r < 2; ++r) {
    const model::RankTensors& rank = layer.ranks()[r];
    for (std::int64_t i = 0; i < rank.tokens * hidden; ++i) {
      const float value = to_float(rank.out[static_cast<std::size_t>(i)]);
      EXPECT_EQ(std::isnan(value), r == 1 && i / hidden == token) << r << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, NanToken,
                         testing::Values(Precision::bf16, Precision::mxfp8, Precision::mxfp8_plain,
                                         Precision::fp8_block));

// What took no part has a gradient of exactly zero.
TEST(LayerRule, GradientsOfWhatTookNoPartAreZero) {
  model::LayerCaseOptions options = base_case();
  options.config.topk = 2;
  options.biases = true;
  options.routing = model::parse_routing_spec("hot:2");  // experts 0 and 1 alone
  options.routing.masked = 0.3;
  LayerCase layer(options);
  const auto peers = peers_for(layer.config());
  layer.poison(*peers);
  layer.run_forward(*peers);
  layer.run_backward(*peers);
  const MoeConfig& c = layer.config();
  for (std::size_t r = 0; r < 2; ++r) {
    const model::RankTensors& rank = layer.ranks()[r];
    for (std::size_t slot = 0; slot < rank.topk_idx.size(); ++slot) {
      if (rank.topk_idx[slot] < 0) {
        EXPECT_EQ(rank.d_topk_weights[slot], 0.0F);
      }
    }
    const std::int64_t used = r == 0 ? 2 : 0;
    const auto* down = reinterpret_cast<const float*>(rank.d_down.bytes.data());
    const std::int64_t per_expert = c.hidden * c.intermediate;
    for (std::int64_t i = used * per_expert; i < c.num_local_experts() * per_expert; ++i) {
      ASSERT_EQ(down[i], 0.0F);
    }
    const auto* bias = reinterpret_cast<const float*>(rank.d_bias_gate_up.bytes.data());
    for (std::int64_t i = used * 2 * c.intermediate; i < c.num_local_experts() * 2 * c.intermediate;
         ++i) {
      ASSERT_EQ(bias[i], 0.0F);
    }
  }
}

// Adding leaves the gradient of an expert without rows as it was, to the bit.
TEST(LayerRule, AddingNothingLeavesTheBufferUntouched) {
  model::LayerCaseOptions options = base_case();
  options.accumulate = true;
  options.grad_dtype = DType::bf16;
  options.routing = model::parse_routing_spec("hot:1");
  LayerCase layer(options);
  const auto peers = peers_for(layer.config());
  const auto before = layer.ranks()[1].d_down.bytes;
  layer.run_forward(*peers);
  layer.run_backward(*peers);
  EXPECT_EQ(layer.ranks()[1].d_down.bytes, before);
}

TEST(LayerRule, StatsCountRowsAndBytes) {
  model::LayerCaseOptions options = base_case();
  options.tokens = {64, 0};  // rank 1 owns no tokens, and half of the experts
  LayerCase layer(options);
  const auto peers = peers_for(layer.config());
  layer.run_forward(*peers);
  const auto& ranks = layer.ranks();
  EXPECT_EQ(ranks[0].forward_stats.rows + ranks[1].forward_stats.rows, 64 * 2);
  const std::int64_t row_bytes = 2 * layer.config().hidden;
  EXPECT_EQ(ranks[0].forward_stats.bytes_pulled, 0);
  EXPECT_EQ(ranks[0].forward_stats.bytes_sent_home, 0);
  const std::int64_t routing_bytes = 64 * 2 * (4 + 4);
  EXPECT_EQ(ranks[1].forward_stats.bytes_pulled,
            ranks[1].forward_stats.rows * row_bytes + routing_bytes);
  EXPECT_EQ(ranks[1].forward_stats.bytes_sent_home, ranks[1].forward_stats.rows * row_bytes);
}

}  // namespace
}  // namespace catamount::test
