// The fused forward kernel alone: routing and schedule come from the host, so that the kernel can
// be checked and timed without the rest of the CUDA backend. Each case: agreement with a plain
// kernel that sums in FP64 (on sampled tokens), then the median time, beside cuBLASLt's dense GEMMs
// of the same size in the same run.
//
//   fused_forward [check] [time] [filter=NAME]
//   overrides: group=N lag=N lead=N move_rows=N sum_tokens=N
#include <cublasLt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "catamount/peer_memory.h"
#include "core/layout.h"
#include "cuda/forward/kernel.h"

namespace {

using namespace catamount;
using catamount::cuda::ForwardParams;
using catamount::cuda::PassState;

#define CUDA_OK(call)                                                             \
  do {                                                                            \
    const cudaError_t error_ = (call);                                            \
    if (error_ != cudaSuccess) {                                                  \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_)); \
      std::exit(1);                                                               \
    }                                                                             \
  } while (false)

enum class Load { uniform, one_expert, skewed };

struct Case {
  const char* name;
  std::int64_t tokens, hidden, intermediate, experts, topk;
  int ranks = 1;
  std::int64_t shared = 0;
  bool bias = false;
  RouterWeight router_weight = RouterWeight::in_combine;
  Keep keep = Keep::routing;  // routing: nothing kept
  bool fused = false;
  std::int64_t capacity_rows = 0;
  Load load = Load::uniform;
  bool masks = false;
  Swiglu swiglu = {};
};

std::map<std::string, int> overrides;
int option(const char* name, int fallback) {
  const auto it = overrides.find(name);
  return it == overrides.end() ? fallback : it->second;
}

__host__ __device__ std::uint32_t mix(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return static_cast<std::uint32_t>(x ^ (x >> 33));
}
__global__ void fill(Bf16* out, std::int64_t n, std::uint64_t seed, float scale) {
  for (std::int64_t i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
    const float u = static_cast<float>(mix(seed * 0x9E3779B97F4A7C15ULL + i)) * 0x1p-31F - 1.0F;
    out[i] = to_bf16(u * scale);
  }
}

template <class T>
T* allocate(std::int64_t n, int poison = 0xFF) {
  T* p = nullptr;
  CUDA_OK(cudaMalloc(&p, std::max<std::int64_t>(n, 1) * sizeof(T) + 256));
  CUDA_OK(cudaMemset(p, poison, n * sizeof(T)));
  return p;
}
Bf16* random_tensor(std::int64_t n, std::uint64_t seed, float scale) {
  Bf16* p = allocate<Bf16>(n);
  fill<<<1024, 256>>>(p, n, seed, scale);
  return p;
}
template <class T>
void upload(T* to, const std::vector<T>& from) {
  if (!from.empty()) {
    CUDA_OK(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
}

// --- The reference: warps, FP64 sums, rounding where the layer rounds. ---

struct RefWeights {
  const Bf16 *gate, *up, *down;
  std::int64_t gate_stride;
  const Bf16 *bias_gate, *bias_up, *bias_down;
  std::int64_t bias_stride;
};

__device__ double dot(const Bf16* a, const Bf16* b, std::int64_t n, int lane) {
  double sum = 0;
  for (std::int64_t i = lane; i < n; i += 32) sum += double(to_float(a[i])) * to_float(b[i]);
  for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, m);
  return sum;
}
__global__ void ref_h(const Bf16* x, RefWeights w, int expert, float weight, Swiglu p,
                      std::int64_t hidden, std::int64_t width, Bf16* h, Bf16* pre) {
  const int lane = threadIdx.x % 32;
  const std::int64_t i = blockIdx.x * 8LL + threadIdx.x / 32;
  if (i >= width) return;
  double g = dot(x, w.gate + expert * w.gate_stride + i * hidden, hidden, lane);
  double u = dot(x, w.up + expert * w.gate_stride + i * hidden, hidden, lane);
  if (w.bias_gate != nullptr) {
    g += to_float(w.bias_gate[expert * w.bias_stride + i]);
    u += to_float(w.bias_up[expert * w.bias_stride + i]);
  }
  if (lane != 0) return;
  pre[i] = to_bf16(float(g));
  pre[width + i] = to_bf16(float(u));
  const double limit = p.limit;
  const double gc = g > limit ? limit : g;
  const double uc = u > limit ? limit : (u < -limit ? -limit : u);
  h[i] = to_bf16(float(weight * gc / (1.0 + exp(-p.alpha * gc)) * (uc + p.up_offset)));
}
__global__ void ref_out(const Bf16* h, RefWeights w, int expert, float weight, float bias_weight,
                        std::int64_t hidden, std::int64_t width, double* out) {
  const int lane = threadIdx.x % 32;
  const std::int64_t j = blockIdx.x * 8LL + threadIdx.x / 32;
  if (j >= hidden) return;
  double y = dot(h, w.down + expert * hidden * width + j * width, width, lane);
  if (w.bias_down != nullptr) y += bias_weight * to_float(w.bias_down[expert * hidden + j]);
  if (lane == 0) out[j] += weight * to_float(to_bf16(float(y)));
}

// --- One rank. ---

struct Rank {
  std::int64_t tokens = 0;
  Bf16 *x = nullptr, *out = nullptr;
  float* topk_weights = nullptr;
  std::vector<std::int32_t> idx;
  std::vector<float> weights;
  std::byte* heap = nullptr;
  std::byte* saved = nullptr;
  PassState* state = nullptr;
  PassState* pristine = nullptr;
  HeapControl* pristine_control = nullptr;
  Schedule schedule;
  RefWeights ref{}, ref_shared{};
};

class Bench {
 public:
  Bench(const Case& c, int num_sms) : c_(c), num_sms_(num_sms) {
    config_.hidden = c.hidden;
    config_.intermediate = c.intermediate;
    config_.num_experts = c.experts;
    config_.topk = c.topk;
    config_.shared_intermediate = c.shared;
    config_.ep_size = c.ranks;
    config_.max_tokens = c.tokens;
    config_.capacity_rows = c.capacity_rows;
    config_.router_weight = c.router_weight;
    config_.keep = c.keep == Keep::routing ? Keep::pre_activations : c.keep;
    config_.swiglu = c.swiglu;
    layout_ = std::make_unique<HeapLayout>(config_);
    saved_layout_ = std::make_unique<SavedLayout>(config_);
    CUDA_OK(cudaMallocHost(&host_error_, sizeof(*host_error_)));
    std::memset(static_cast<void*>(host_error_), 0, sizeof(*host_error_));
    make_ranks();
  }
  ~Bench() {
    cudaFreeHost(host_error_);
    for (void* p : owned_) cudaFree(p);
  }

  // Milliseconds of the kernel.
  float run() {
    for (Rank& r : ranks_) reset(r);
    CUDA_OK(cudaEventRecord(begin_));
    cuda::LaunchOptions options;
    options.num_sms = num_sms_;
    options.comm_sms = option("comm", 0);
    options.reserve_sms = option("reserve", 0);
    CUDA_OK(cuda::launch_forward(params_.data(), c_.ranks, options, nullptr));
    CUDA_OK(cudaEventRecord(end_));
    CUDA_OK(cudaEventSynchronize(end_));
    float ms = 0;
    CUDA_OK(cudaEventElapsedTime(&ms, begin_, end_));
    return ms;
  }

  bool healthy() {
    for (Rank& r : ranks_) {
      auto state = std::make_unique<PassState>();
      CUDA_OK(cudaMemcpy(state.get(), r.state, sizeof(PassState), cudaMemcpyDeviceToHost));
      if (state->abort == 0) continue;
      const cuda::ErrorRecord& e = *host_error_;
      std::printf(
          "%s: FAULT %d rank %d %s waits for %s peer %d unit %d counter %d: %llu, saw %llu\n",
          c_.name, int(e.fault), e.rank, to_string(e.stage), to_string(e.waits_for), e.peer, e.unit,
          e.counter, (unsigned long long)e.expected, (unsigned long long)e.seen);
      return false;
    }
    return true;
  }

  // Largest relative error over the sampled tokens.
  bool check(int samples) {
    for (Rank& r : ranks_) {
      CUDA_OK(cudaMemset(r.out, 0xFF, r.tokens * c_.hidden * 2));
      if (r.saved != nullptr) CUDA_OK(cudaMemset(r.saved, 0xFF, saved_layout_->bytes));
      if (r.saved != nullptr) upload_routing(r);
    }
    run();
    if (!healthy()) return false;
    double worst = 0, worst_pre = 0;
    std::vector<Bf16> first;
    for (int i = 0; i < c_.ranks; ++i) {
      Rank& r = ranks_[i];
      std::vector<Bf16> out(r.tokens * c_.hidden);
      CUDA_OK(cudaMemcpy(out.data(), r.out, out.size() * 2, cudaMemcpyDeviceToHost));
      const std::int64_t step = std::max<std::int64_t>(1, r.tokens / samples);
      for (std::int64_t t = 0; t < r.tokens; t += step) {
        worst = std::max(worst, token_error(r, t, out.data() + t * c_.hidden, &worst_pre));
      }
      std::int64_t nan = 0;
      for (const Bf16 v : out) nan += (v.bits & 0x7F80) == 0x7F80;
      if (nan > 0) std::printf("%s: rank %d: %lld not finite\n", c_.name, i, (long long)nan);
      if (nan > 0) worst = 9;
      if (i == 0) first = out;
    }
    // Again: the same bits.
    run();
    std::vector<Bf16> again(first.size());
    CUDA_OK(cudaMemcpy(again.data(), ranks_[0].out, again.size() * 2, cudaMemcpyDeviceToHost));
    const bool same =
        again.empty() || std::memcmp(first.data(), again.data(), again.size() * 2) == 0;
    const bool ok = worst < 8e-3 && worst_pre < 8e-3 && same;
    std::printf("%-4s %-28s error %.2e pre %.2e repeat %s\n", ok ? "ok" : "BAD", c_.name, worst,
                worst_pre, same ? "same" : "DIFFERS");
    return ok;
  }

  double flops() const {
    double rows = 0;
    for (const Rank& r : ranks_) {
      for (const std::int32_t e : r.idx) rows += e >= 0;
    }
    return 6.0 * rows * c_.hidden * c_.intermediate;
  }

 private:
  template <class T>
  T* own(T* p) {
    owned_.push_back(p);
    return p;
  }

  void make_ranks() {
    CUDA_OK(cudaEventCreate(&begin_));
    CUDA_OK(cudaEventCreate(&end_));
    ranks_.resize(c_.ranks);
    params_.resize(c_.ranks);
    const std::int64_t local = c_.experts / c_.ranks;
    for (int i = 0; i < c_.ranks; ++i) {
      Rank& r = ranks_[i];
      r.tokens = i == 0 ? c_.tokens : std::max<std::int64_t>(0, c_.tokens - 37 * i);
      r.x = own(random_tensor(r.tokens * c_.hidden, 11 + i, 1.0F));
      r.out = own(allocate<Bf16>(r.tokens * c_.hidden));
      for (std::int64_t s = 0; s < r.tokens * c_.topk; ++s) r.idx.push_back(expert(i, s));
      for (std::int64_t s = 0; s < r.tokens * c_.topk; ++s) {
        r.weights.push_back(0.25F + float(mix(s * 7 + i) % 1024) / 1024.0F);
      }
      r.topk_weights = own(allocate<float>(r.weights.size()));
      upload(r.topk_weights, r.weights);
      r.heap = own(allocate<std::byte>(layout_->bytes));
      if (c_.keep != Keep::routing) r.saved = own(allocate<std::byte>(saved_layout_->bytes));
      r.state = own(allocate<PassState>(1));
      r.pristine = own(allocate<PassState>(1));
      const float scale = 1.7F;
      auto weight = [&](std::int64_t n, std::int64_t k, std::uint64_t seed) {
        return own(random_tensor(n, seed, scale / std::sqrt(float(k))));
      };
      const std::int64_t ih = c_.intermediate * c_.hidden;
      RefWeights& w = r.ref;
      if (c_.fused) {
        w.gate = weight(2 * local * ih, c_.hidden, 100 + i);
        w.up = w.gate + ih;
        w.gate_stride = 2 * ih;
      } else {
        w.gate = weight(local * ih, c_.hidden, 100 + i);
        w.up = weight(local * ih, c_.hidden, 200 + i);
        w.gate_stride = ih;
      }
      w.down = weight(local * ih, c_.intermediate, 300 + i);
      if (c_.bias) {
        w.bias_gate = own(random_tensor(local * c_.intermediate, 400 + i, 1.0F));
        w.bias_up = own(random_tensor(local * c_.intermediate, 500 + i, 1.0F));
        w.bias_down = own(random_tensor(local * c_.hidden, 600 + i, 1.0F));
        w.bias_stride = c_.intermediate;
      }
      if (c_.shared > 0) {
        RefWeights& d = r.ref_shared;
        d.gate = weight(c_.shared * c_.hidden, c_.hidden, 700 + i);
        d.up = weight(c_.shared * c_.hidden, c_.hidden, 800 + i);
        d.down = weight(c_.shared * c_.hidden, c_.shared, 900 + i);
      }
    }
    for (int i = 0; i < c_.ranks; ++i) prepare(i);
  }

  std::int32_t expert(int rank, std::int64_t slot) const {
    const std::uint32_t r = mix(0x1234567ULL * (rank + 1) + slot * 3 + 1);
    if (c_.masks && r % 5 == 0) return -1;
    const auto e = static_cast<std::uint32_t>(c_.experts);
    switch (c_.load) {
      case Load::one_expert:
        return static_cast<std::int32_t>(e / 2);
      case Load::skewed:
        return static_cast<std::int32_t>((r / 8 % e) * (r / 1024 % e) / e);
      default: {
        // Distinct experts in a token, uniform over tokens.
        const std::int64_t token = slot / c_.topk;
        const std::uint32_t start = mix(token * 977 + rank) % e;
        const std::uint32_t stride = e / static_cast<std::uint32_t>(c_.topk);
        return static_cast<std::int32_t>((start + (slot % c_.topk) * std::max(1U, stride)) % e);
      }
    }
  }

  template <class T>
  T* at(const Rank& r, const Region& region) const {
    return reinterpret_cast<T*>(r.heap + region.offset);
  }
  RoutingTables device_routing(const Rank& r) const {
    return r.saved != nullptr ? saved_layout_->routing.tables(r.saved)
                              : layout_->routing.tables(r.heap);
  }

  struct HostRouting {
    std::vector<std::int64_t> expert_rows;
    std::vector<std::int32_t> block_begin, slot_row;
    std::vector<RowSource> row_source;
    std::vector<float> row_weight;
  };
  std::map<const Rank*, HostRouting> host_routing_;

  void upload_routing(const Rank& r) {
    const HostRouting& h = host_routing_[&r];
    const RoutingTables t = device_routing(r);
    upload(t.expert_rows, h.expert_rows);
    upload(t.block_begin, h.block_begin);
    upload(t.slot_row, h.slot_row);
    upload(t.row_source, h.row_source);
    upload(t.row_weight, h.row_weight);
  }

  void prepare(int rank) {
    Rank& r = ranks_[rank];
    const std::int64_t local = c_.experts / c_.ranks;
    std::vector<RankSlots> slots;
    for (const Rank& s : ranks_) slots.push_back({s.tokens, s.idx.data(), false, s.weights.data()});
    HostRouting& h = host_routing_[&r];
    h.expert_rows.resize(local);
    h.block_begin.resize(local + 1);
    h.slot_row.resize(c_.tokens * c_.topk);
    h.row_source.resize(max_blocks(config_) * kBlockRows);
    h.row_weight.resize(max_blocks(config_) * kBlockRows);
    std::vector<std::int64_t> next(local);
    build_routing({rank, c_.ranks, c_.experts, c_.topk}, slots.data(),
                  {h.expert_rows.data(), h.block_begin.data(), h.row_source.data(),
                   h.row_weight.data(), h.slot_row.data()},
                  next.data());
    upload_routing(r);

    ScheduleTuning tuning = cuda::forward_tuning(config_);
    tuning.group_blocks = option("group", tuning.group_blocks);
    tuning.lag_tasks = option("lag", tuning.lag_tasks);
    tuning.lead_runs = option("lead", tuning.lead_runs);
    tuning.rows_per_move = option("move_rows", tuning.rows_per_move);
    tuning.tokens_per_sum = option("sum_tokens", tuning.tokens_per_sum);
    const ScheduleConfig sc = schedule_config(config_, false, tuning);
    std::vector<Run> runs(sc.max_runs());
    std::vector<Piece> pieces(sc.max_pieces());
    std::vector<std::int32_t> block_piece(sc.max_blocks + 1), window_run(sc.max_windows() + 1);
    std::vector<Segment> segments[2];
    for (auto& s : segments) s.resize(sc.max_segments());
    build_schedule(sc, r.tokens, h.block_begin.data(),
                   {runs.data(),
                    pieces.data(),
                    block_piece.data(),
                    window_run.data(),
                    {segments[0].data(), segments[1].data()}},
                   &r.schedule);
    const ScheduleTables tables{
        at<Run>(r, layout_->runs),
        at<Piece>(r, layout_->pieces),
        at<std::int32_t>(r, layout_->block_piece),
        at<std::int32_t>(r, layout_->window_run),
        {at<Segment>(r, layout_->segments[0]), at<Segment>(r, layout_->segments[1])}};
    for (int q = 0; q < 2; ++q) upload(tables.segments[q], segments[q]);
    r.schedule.tables = tables;

    auto state = std::make_unique<PassState>();
    std::memset(static_cast<void*>(state.get()), 0, sizeof(PassState));
    state->schedule = r.schedule;
    state->pass = 1;
    state->host_error = host_error_;
    for (int s = 0; s < c_.ranks; ++s) {
      PublishedInputs& in = state->inputs[s];
      in.tokens = ranks_[s].tokens;
      in.x_offset = reinterpret_cast<std::byte*>(ranks_[s].x) - ranks_[s].heap;
      in.x_stride = 2 * c_.hidden;
    }
    CUDA_OK(cudaMemcpy(r.pristine, state.get(), sizeof(PassState), cudaMemcpyHostToDevice));

    ForwardParams& p = params_[rank];
    p = ForwardParams{};
    p.peers.rank = rank;
    p.peers.ep_size = c_.ranks;
    for (int s = 0; s < c_.ranks; ++s) p.peers.base[s] = ranks_[s].heap;
    p.state = r.state;
    p.counters = at<std::uint32_t>(r, layout_->counters);
    p.routing = device_routing(r);
    p.hidden = c_.hidden;
    p.intermediate = c_.intermediate;
    p.shared_intermediate = c_.shared;
    p.topk = c_.topk;
    p.tokens = r.tokens;
    p.capacity_blocks = capacity_blocks(config_);
    p.num_local_experts = static_cast<int>(local);
    p.swiglu = c_.swiglu;
    p.router_weight = c_.router_weight;
    p.timeout_ns = 1'500'000'000;
    p.x = r.x;
    p.topk_weights = r.topk_weights;
    p.out = r.out;
    p.gate = r.ref.gate;
    p.up = r.ref.up;
    p.down = r.ref.down;
    p.fused_gate_up = c_.fused;
    p.shared_gate = r.ref_shared.gate;
    p.shared_up = r.ref_shared.up;
    p.shared_down = r.ref_shared.down;
    if (c_.bias) {
      p.bias_gate = {r.ref.bias_gate, c_.intermediate, false};
      p.bias_up = {r.ref.bias_up, c_.intermediate, false};
      p.bias_down = {r.ref.bias_down, c_.hidden, false};
    }
    p.x_pool = at<Bf16>(r, layout_->x);
    p.h_pool = at<Bf16>(r, layout_->h);
    p.y_pool = at<Bf16>(r, layout_->y);
    p.shared_h = at<Bf16>(r, layout_->shared_h);
    p.shared_y = at<Bf16>(r, layout_->shared_y);
    p.home_rows_offset = static_cast<std::int64_t>(layout_->home_rows.offset);
    if (r.saved != nullptr) {
      p.kept_pre_activations =
          reinterpret_cast<Bf16*>(r.saved + saved_layout_->pre_activations.offset);
      p.kept_shared_pre_activations =
          c_.shared == 0
              ? nullptr
              : reinterpret_cast<Bf16*>(r.saved + saved_layout_->shared_pre_activations.offset);
      p.kept_x = config_.keep == Keep::pre_activations_and_x
                     ? reinterpret_cast<Bf16*>(r.saved + saved_layout_->x.offset)
                     : nullptr;
      p.saved_header = reinterpret_cast<SavedHeader*>(r.saved);
      p.saved_fingerprint = 7;
    }
    CUDA_OK(cuda::make_forward_maps(&p));
  }

  void reset(Rank& r) {
    CUDA_OK(cudaMemsetAsync(r.heap, 0, sizeof(HeapControl)));
    CUDA_OK(cudaMemsetAsync(at<std::byte>(r, layout_->counters), 0, layout_->counters.bytes));
    CUDA_OK(cudaMemcpyAsync(r.state, r.pristine, sizeof(PassState), cudaMemcpyDeviceToDevice));
  }

  static double distance(const std::vector<double>& want, const Bf16* got) {
    double diff = 0, norm = 0;
    for (std::size_t j = 0; j < want.size(); ++j) {
      const double d = want[j] - to_float(got[j]);
      diff += d * d;
      norm += want[j] * want[j];
    }
    return norm == 0 ? (diff == 0 ? 0 : 9) : std::sqrt(diff / norm);
  }

  double token_error(const Rank& r, std::int64_t t, const Bf16* got, double* worst_pre) {
    const std::int64_t local = c_.experts / c_.ranks;
    const std::int64_t widest = std::max(c_.intermediate, c_.shared);
    if (ref_h_ == nullptr) {
      ref_h_ = own(allocate<Bf16>(3 * widest));
      ref_out_ = own(allocate<double>(c_.hidden));
    }
    Bf16* pre = ref_h_ + widest;
    CUDA_OK(cudaMemset(ref_out_, 0, c_.hidden * 8));
    const auto blocks = [](std::int64_t n) { return static_cast<unsigned>((n + 7) / 8); };
    const bool before = c_.router_weight == RouterWeight::before_down;
    for (std::int64_t k = 0; k < c_.topk; ++k) {
      const std::int32_t e = r.idx[t * c_.topk + k];
      if (e < 0) continue;
      const Rank& owner = ranks_[e / local];
      const float weight = r.weights[t * c_.topk + k];
      const int le = static_cast<int>(e % local);
      ref_h<<<blocks(c_.intermediate), 256>>>(r.x + t * c_.hidden, owner.ref, le,
                                              before ? weight : 1.0F, c_.swiglu, c_.hidden,
                                              c_.intermediate, ref_h_, pre);
      ref_out<<<blocks(c_.hidden), 256>>>(ref_h_, owner.ref, le, before ? 1.0F : weight,
                                          before ? weight : 1.0F, c_.hidden, c_.intermediate,
                                          ref_out_);
      if (&owner == &r && r.saved != nullptr && !r.schedule.macrobatched()) {
        const std::int32_t row = host_routing_[&r].slot_row[t * c_.topk + k];
        const std::int64_t n = 2 * c_.intermediate;
        std::vector<Bf16> want(n), kept(n);
        CUDA_OK(cudaMemcpy(want.data(), pre, 2 * n, cudaMemcpyDeviceToHost));
        const Bf16* from =
            reinterpret_cast<const Bf16*>(r.saved + saved_layout_->pre_activations.offset);
        CUDA_OK(cudaMemcpy(kept.data(), from + row * n, 2 * n, cudaMemcpyDeviceToHost));
        std::vector<double> want_double;
        for (const Bf16 v : want) want_double.push_back(to_float(v));
        *worst_pre = std::max(*worst_pre, distance(want_double, kept.data()));
      }
    }
    if (c_.shared > 0) {
      ref_h<<<blocks(c_.shared), 256>>>(r.x + t * c_.hidden, r.ref_shared, 0, 1.0F, c_.swiglu,
                                        c_.hidden, c_.shared, ref_h_, pre);
      ref_out<<<blocks(c_.hidden), 256>>>(ref_h_, r.ref_shared, 0, 1.0F, 1.0F, c_.hidden, c_.shared,
                                          ref_out_);
    }
    std::vector<double> want(c_.hidden);
    CUDA_OK(cudaMemcpy(want.data(), ref_out_, c_.hidden * 8, cudaMemcpyDeviceToHost));
    return distance(want, got);
  }

  Case c_;
  int num_sms_;
  MoeConfig config_;
  std::unique_ptr<HeapLayout> layout_;
  std::unique_ptr<SavedLayout> saved_layout_;
  std::vector<Rank> ranks_;
  std::vector<ForwardParams> params_;
  std::vector<void*> owned_;
  cuda::ErrorRecord* host_error_ = nullptr;
  Bf16* ref_h_ = nullptr;
  double* ref_out_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// cuBLASLt's time for [rows, k] x [k, cols], row-major BF16.
class Dense {
 public:
  Dense() {
    cublasLtCreate(&handle_);
    CUDA_OK(cudaMalloc(&workspace_, kWorkspace));
  }
  float run(std::int64_t rows, std::int64_t cols, std::int64_t k, int repeats) {
    Bf16* a = random_tensor(rows * k, 1, 1.0F);
    Bf16* b = random_tensor(cols * k, 2, 0.02F);
    Bf16* d = allocate<Bf16>(rows * cols);
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t transpose = CUBLAS_OP_T;
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                   sizeof(transpose));
    cublasLtMatrixLayout_t la = nullptr, lb = nullptr, ld = nullptr;
    cublasLtMatrixLayoutCreate(&lb, CUDA_R_16BF, k, cols, k);
    cublasLtMatrixLayoutCreate(&la, CUDA_R_16BF, k, rows, k);
    cublasLtMatrixLayoutCreate(&ld, CUDA_R_16BF, cols, rows, cols);
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &kWorkspace, sizeof(kWorkspace));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    cublasLtMatmulAlgoGetHeuristic(handle_, desc, lb, la, ld, ld, preference, 1, &result, &found);
    const float one = 1, zero = 0;
    cudaEvent_t begin = nullptr, end = nullptr;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    std::vector<float> times;
    for (int i = 0; i < repeats + 3; ++i) {
      cudaEventRecord(begin);
      cublasLtMatmul(handle_, desc, &one, b, lb, a, la, &zero, d, ld, d, ld, &result.algo,
                     workspace_, kWorkspace, nullptr);
      cudaEventRecord(end);
      cudaEventSynchronize(end);
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      if (i >= 3) times.push_back(ms);
    }
    CUDA_OK(cudaGetLastError());
    cudaFree(a);
    cudaFree(b);
    cudaFree(d);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  static constexpr std::size_t kWorkspace = 64 << 20;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
};

const Swiglu kGptOss{1.702F, 7.0F, 1.0F};

const std::vector<Case> kChecks = {
    {"tiny", 5, 64, 96, 4, 2},
    {"odd sizes", 300, 136, 200, 5, 3},
    {"blocks", 1000, 512, 384, 8, 2},
    {"one token", 1, 256, 256, 8, 4},
    {"no tokens", 0, 256, 256, 8, 2},
    {"one expert", 700, 256, 192, 8, 1, 1, 0, false, {}, Keep::routing, false, 0, Load::one_expert},
    {"masks, same expert twice",
     500,
     256,
     192,
     8,
     3,
     1,
     0,
     false,
     {},
     Keep::routing,
     true,
     0,
     Load::skewed,
     true},
    {"shared", 333, 256, 192, 4, 2, 1, 320},
    {"gpt-oss form", 600, 360, 360, 8, 4, 1, 0, true, RouterWeight::in_combine, Keep::routing, true,
     0, Load::uniform, false, kGptOss},
    {"before down, kept", 600, 256, 200, 8, 2, 1, 136, true, RouterWeight::before_down,
     Keep::pre_activations_and_x},
    {"kept, fused", 900, 1024, 512, 8, 2, 1, 0, false, {}, Keep::pre_activations, true},
    {"macrobatches",
     900,
     256,
     192,
     8,
     4,
     1,
     0,
     false,
     {},
     Keep::pre_activations_and_x,
     false,
     1024},
    {"2 ranks", 400, 256, 192, 8, 3, 2},
    {"4 ranks, shared, masks", 500, 512, 384, 8, 2, 4, 256, true, RouterWeight::before_down,
     Keep::pre_activations, false, 0, Load::skewed, true, kGptOss},
    {"8 ranks, macrobatched",
     600,
     256,
     192,
     16,
     4,
     8,
     0,
     false,
     {},
     Keep::routing,
     true,
     512,
     Load::skewed},
    {"wide", 2048, 2048, 768, 16, 4},
};

const std::vector<Case> kTimes = {
    {"dsv3", 16384, 7168, 2048, 32, 8},
    {"qwen235", 16384, 4096, 1536, 128, 8},
    {"qwen30", 32768, 2048, 768, 128, 8},
    {"mixtral", 8192, 4096, 14336, 8, 2},
    {"gptoss",
     16384,
     2880,
     2880,
     128,
     4,
     1,
     0,
     true,
     {},
     Keep::routing,
     true,
     0,
     Load::uniform,
     false,
     kGptOss},
};

}  // namespace

int main(int argc, char** argv) {
  bool check = false, time = false, dense = false;
  std::string filter;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const std::size_t eq = arg.find('=');
    if (arg == "check") check = true;
    if (arg == "time") time = true;
    if (arg == "dense") dense = true;
    if (eq == std::string::npos) continue;
    if (arg.substr(0, eq) == "filter") {
      filter = arg.substr(eq + 1);
    } else {
      overrides[arg.substr(0, eq)] = std::atoi(arg.c_str() + eq + 1);
    }
  }
  cudaDeviceProp prop{};
  CUDA_OK(cudaGetDeviceProperties(&prop, 0));
  const int sms = prop.multiProcessorCount;
  bool ok = true;
  for (const Case& c : kChecks) {
    if (!check || std::string(c.name).find(filter) == std::string::npos) continue;
    ok = Bench(c, sms).check(40) && ok;
    std::fflush(stdout);
  }
  for (const Case& c : kTimes) {
    if (!time || std::string(c.name).find(filter) == std::string::npos) continue;
    Bench bench(c, sms);
    if (check) ok = bench.check(8) && ok;
    const int repeats = option("repeats", 9);
    float dense_ms = 0;
    if (dense) {
      Dense gemm;
      const std::int64_t rows = c.tokens * c.topk;
      dense_ms = gemm.run(rows, 2 * c.intermediate, c.hidden, repeats) +
                 gemm.run(rows, c.hidden, c.intermediate, repeats);
    }
    std::vector<float> times;
    for (int i = 0; i < repeats + 2; ++i) {
      const float ms = bench.run();
      if (i >= 2) times.push_back(ms);
    }
    ok = bench.healthy() && ok;
    std::sort(times.begin(), times.end());
    const float ms = times[times.size() / 2];
    std::printf("%-8s %7.3f ms (%.3f-%.3f) %6.1f TFLOP/s", c.name, ms, times.front(), times.back(),
                bench.flops() / ms * 1e-9);
    if (dense) {
      std::printf("  dense %7.3f ms %6.1f TFLOP/s  ratio %.3f", dense_ms,
                  bench.flops() / dense_ms * 1e-9, dense_ms / ms);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return ok ? 0 : 1;
}
