// The routing kernel against core: the same routing tables, the same schedule, bit for bit.
#include <gtest/gtest.h>

#include <cstring>

#include "core/routing.h"
#include "core/schedule.h"
#include "cuda/forward_params.h"
#include "gpu.h"
#include "model/routing_generators.h"

namespace catamount::test {
namespace {

struct RoutingCase {
  std::string name;
  MoeConfig config;
  std::vector<std::int64_t> tokens;
  std::string routing = "uniform";
  double masked = 0;
  bool idx_64bit = false;
  bool backward = false;
};

RoutingCase make_case(const std::string& name, std::vector<std::int64_t> tokens,
                      std::int64_t experts, std::int64_t topk) {
  RoutingCase c;
  c.name = name;
  c.tokens = std::move(tokens);
  c.config.ep_size = static_cast<int>(c.tokens.size());
  c.config.hidden = 512;
  c.config.intermediate = 256;
  c.config.num_experts = experts;
  c.config.topk = topk;
  c.config.timeout_s = 20;
  for (const std::int64_t t : c.tokens) c.config.max_tokens = std::max(c.config.max_tokens, t);
  return c;
}

std::vector<RoutingCase> cases() {
  std::vector<RoutingCase> all;
  const auto add = [&](RoutingCase c, const auto& change) {
    change(c);
    all.push_back(std::move(c));
  };
  const auto plain = [](RoutingCase&) {};
  add(make_case("no_tokens", {0}, 8, 2), plain);
  add(make_case("one_token", {1}, 8, 2), plain);
  add(make_case("one_expert", {300}, 1, 1), plain);
  add(make_case("tokens1000", {1000}, 64, 8), plain);
  add(make_case("large", {16384}, 128, 8), plain);
  add(make_case("large_hot", {16384}, 128, 8), [](RoutingCase& c) { c.routing = "hot:1"; });
  add(make_case("large_zipf", {32768}, 128, 8), [](RoutingCase& c) { c.routing = "zipf:1.2"; });
  add(make_case("experts600", {3000}, 600, 4), plain);
  add(make_case("experts1500", {2000}, 1500, 3), plain);
  add(make_case("topk64", {100}, 64, 64), plain);
  add(make_case("fewer_than_max", {100}, 16, 4),
      [](RoutingCase& c) { c.config.max_tokens = 5000; });
  for (const int ranks : {2, 3, 4, 8}) {
    std::vector<std::int64_t> tokens;
    for (int r = 0; r < ranks; ++r) tokens.push_back(r == 1 ? 0 : 97 * r + 200);
    const std::string name = "ranks" + std::to_string(ranks);
    add(make_case(name, tokens, 24, 3), plain);
    add(make_case(name + "_masked", tokens, 24, 3), [](RoutingCase& c) { c.masked = 0.4; });
    add(make_case(name + "_64bit", tokens, 24, 3), [](RoutingCase& c) { c.idx_64bit = true; });
    add(make_case(name + "_hot", tokens, 24, 3), [](RoutingCase& c) { c.routing = "hot:3"; });
    for (const bool backward : {false, true}) {
      const std::string direction = backward ? "_backward" : "_forward";
      add(make_case(name + direction, tokens, 24, 3), [&](RoutingCase& c) {
        c.config.shared_intermediate = 264;
        c.backward = backward;
      });
      add(make_case(name + direction + "_macrobatches", tokens, 24, 3), [&](RoutingCase& c) {
        c.config.shared_intermediate = 264;
        c.config.capacity_rows = 300;
        c.routing = "zipf:2";
        c.backward = backward;
      });
      add(make_case(name + direction + "_capacity1", tokens, 24, 3), [&](RoutingCase& c) {
        c.config.capacity_rows = 1;
        c.routing = "hot:2";
        c.backward = backward;
      });
    }
  }
  add(make_case("all_masked", {500, 70}, 8, 2), [](RoutingCase& c) { c.masked = 1; });
  return all;
}

// Host tables of one rank.
struct HostTables {
  std::vector<std::int64_t> expert_rows, next;
  std::vector<std::int32_t> block_begin, slot_row, block_piece, window_run;
  std::vector<RowSource> row_source;
  std::vector<float> row_weight;
  std::vector<Run> runs;
  std::vector<Piece> pieces;
  std::vector<Segment> segments[kNumQueues];
  Schedule schedule;

  RoutingTables routing() {
    return {expert_rows.data(), block_begin.data(), row_source.data(), row_weight.data(),
            slot_row.data()};
  }
  ScheduleTables tables() {
    return {runs.data(),
            pieces.data(),
            block_piece.data(),
            window_run.data(),
            {segments[0].data(), segments[1].data()}};
  }
  HostTables(const MoeConfig& c, const ScheduleConfig& s) {
    const auto n = [](std::int64_t size) { return static_cast<std::size_t>(size); };
    expert_rows.resize(n(c.num_local_experts()));
    next.resize(expert_rows.size());
    block_begin.resize(expert_rows.size() + 1);
    row_source.resize(n(max_blocks(c) * kBlockRows));
    row_weight.resize(row_source.size());
    slot_row.resize(n(c.max_tokens * c.topk));
    runs.resize(n(s.max_runs()));
    pieces.resize(n(s.max_pieces()));
    block_piece.resize(n(s.max_blocks));
    window_run.resize(n(s.max_windows() + 1));
    for (auto& queue : segments) queue.resize(n(s.max_segments()));
  }
};

// By member: padding bytes may differ.
bool same(const RowSource& a, const RowSource& b) {
  return a.token == b.token && a.rank == b.rank && a.slot == b.slot;
}
bool same(const Run& a, const Run& b) {
  return a.expert == b.expert && a.block == b.block && a.num_blocks == b.num_blocks &&
         a.piece == b.piece && a.ends_piece == b.ends_piece;
}
bool same(const Piece& a, const Piece& b) {
  return a.expert == b.expert && a.block == b.block && a.num_blocks == b.num_blocks &&
         a.first == b.first && a.last == b.last && a.scratch == b.scratch &&
         a.wait_piece == b.wait_piece;
}
bool same(const Segment& a, const Segment& b) {
  return a.stage == b.stage && a.shared == b.shared && a.expert == b.expert && a.block == b.block &&
         a.num_blocks == b.num_blocks && a.piece == b.piece && a.first_task == b.first_task;
}
template <class T>
bool same(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T>
void expect_same(const char* name, const T* device, const std::vector<T>& host, std::int64_t n) {
  const std::vector<T> mine = download(device, static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    ASSERT_TRUE(same(mine[i], host[i])) << name << "[" << i << "]";
  }
}

class RoutingKernel : public GpuTest, public testing::WithParamInterface<RoutingCase> {
 protected:
  void prepare() {
    const MoeConfig& c = GetParam().config;
    peers_ = make_virtual_peers(c.ep_size, heap_bytes(c));
    for (int r = 0; r < c.ep_size; ++r) {
      cudaMemset(peers_->table(r).base[r] + sizeof(HeapControl), 0xff,
                 peers_->heap_bytes() - sizeof(HeapControl));
    }
    cudaDeviceSynchronize();
  }

  // New ids on the host and on the device; parameters of the launch.
  std::vector<cuda::RoutingParams> route(std::uint64_t seed) {
    const RoutingCase& c = GetParam();
    auto& mine = dynamic_cast<cuda::CudaPeers&>(*peers_);
    std::vector<cuda::RoutingParams> all;
    routing_.clear();
    slots_.clear();
    model::RoutingSpec spec = model::parse_routing_spec(c.routing);
    spec.masked = c.masked;
    for (std::size_t r = 0; r < c.tokens.size(); ++r) {
      const std::int64_t t = c.tokens[r];
      routing_.push_back(model::make_routing(spec, t, c.config.topk, c.config.num_experts,
                                             c.config.ep_size, seed + r));
      const model::Routing& host = routing_.back();
      slots_.push_back({t, host.topk_idx.data(), false, host.topk_weights.data()});
      ForwardArgs a;
      a.x = {arena_.allocate(16), DType::bf16, {t, c.config.hidden}};
      a.topk_idx = upload_ids(host, t);
      a.topk_weights =
          arena_.upload(ConstTensorView{host.topk_weights.data(), DType::f32, {t, c.config.topk}});
      all.push_back(cuda::routing_params(mine, mine.ranks()[r], c.config, a));
      all.back().schedule.backward = c.backward;
    }
    return all;
  }

  void expect_tables(const cuda::RoutingParams& p, int rank) {
    const MoeConfig& c = GetParam().config;
    HostTables host(c, p.schedule);
    const RoutingShape shape{rank, c.ep_size, c.num_experts, c.topk};
    const RoutingTables routing = host.routing();
    build_routing(shape, slots_.data(), routing, host.next.data());
    const std::int64_t tokens = slots_[static_cast<std::size_t>(rank)].tokens;
    build_schedule(p.schedule, tokens, routing.block_begin, host.tables(), &host.schedule);
    const Schedule& expected = host.schedule;
    const cuda::PassState state = download(p.state, 1)[0];
    const Schedule& mine = state.schedule;
    ASSERT_EQ(state.abort, 0U);
    EXPECT_EQ(mine.tokens, expected.tokens);
    EXPECT_EQ(mine.num_blocks, expected.num_blocks);
    EXPECT_EQ(mine.num_shared_blocks, expected.num_shared_blocks);
    ASSERT_EQ(mine.num_windows, expected.num_windows);
    ASSERT_EQ(mine.num_runs, expected.num_runs);
    ASSERT_EQ(mine.num_pieces, expected.num_pieces);
    EXPECT_EQ(mine.finished_target, expected.finished_target);

    expect_same("expert_rows", p.tables.expert_rows, host.expert_rows, c.num_local_experts());
    expect_same("block_begin", p.tables.block_begin, host.block_begin, c.num_local_experts() + 1);
    const std::int64_t rows = std::int64_t{expected.num_blocks} * kBlockRows;
    expect_same("row_source", p.tables.row_source, host.row_source, rows);
    expect_same("row_weight", p.tables.row_weight, host.row_weight, rows);
    expect_same("slot_row", p.tables.slot_row, host.slot_row, tokens * c.topk);
    const ScheduleTables& tables = p.schedule_tables;
    expect_same("runs", tables.runs, host.runs, expected.num_runs);
    expect_same("pieces", tables.pieces, host.pieces, expected.num_pieces);
    expect_same("block_piece", tables.block_piece, host.block_piece, expected.num_blocks);
    expect_same("window_run", tables.window_run, host.window_run, expected.num_windows + 1);
    for (int q = 0; q < kNumQueues; ++q) {
      EXPECT_EQ(mine.num_tasks[q], expected.num_tasks[q]);
      EXPECT_EQ(state.cursor[q], 0U);
      ASSERT_EQ(mine.num_segments[q], expected.num_segments[q]);
      expect_same("segments", tables.segments[q], host.segments[q], expected.num_segments[q]);
    }
    expect_same("counters", p.counters,
                std::vector<std::uint32_t>(static_cast<std::size_t>(p.num_counters)),
                p.num_counters);
  }

  std::unique_ptr<PeerMemory> peers_;
  std::vector<model::Routing> routing_;
  std::vector<RankSlots> slots_;

 private:
  ConstTensorView upload_ids(const model::Routing& host, std::int64_t t) {
    const std::int64_t k = GetParam().config.topk;
    if (!GetParam().idx_64bit) {
      return arena_.upload(ConstTensorView{host.topk_idx.data(), DType::i32, {t, k}});
    }
    const std::vector<std::int64_t> wide(host.topk_idx.begin(), host.topk_idx.end());
    return arena_.upload(ConstTensorView{wide.data(), DType::i64, {t, k}});
  }

  DeviceArena arena_;
};

TEST_P(RoutingKernel, BuildsWhatCoreBuilds) {
  prepare();
  std::uint64_t seed = 1;
  for (const int ctas : {132, 132, 7, 1}) {
    const auto params = route(seed += 100);
    ASSERT_EQ(cuda::launch_routing(params.data(), static_cast<int>(params.size()), ctas, nullptr),
              cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (std::size_t r = 0; r < params.size(); ++r) {
      SCOPED_TRACE("rank " + std::to_string(r) + ", CTAs " + std::to_string(ctas));
      expect_tables(params[r], static_cast<int>(r));
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RoutingKernel, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace catamount::test
