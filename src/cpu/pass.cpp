#include "cpu/pass.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "core/check.h"
#include "core/saved.h"
#include "cpu/barrier.h"
#include "cpu/stages.h"

namespace catamount::cpu {
namespace {

int workers_per_rank(const MoeConfig& config, std::size_t local_ranks) {
  if (config.threads_per_rank > 0) return config.threads_per_rank;
  const unsigned threads = std::thread::hardware_concurrency();
  return std::max(1, static_cast<int>(threads / local_ranks));
}

// A tensor of no tokens may have no address; nobody reads it.
std::int64_t offset_from(const std::byte* heap, const void* data) {
  if (data == nullptr) return 0;
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) -
                                   reinterpret_cast<std::uintptr_t>(heap));
}

// Tokens are quantized once, where they live; BF16 rows are read where the caller keeps them.
const std::byte* publish_rows(const RankPass& pass, const ConstTensorView& rows,
                              const Region& quantized, std::int64_t* stride) {
  const RowFormat format = pass.hidden_format();
  if (format.precision == Precision::bf16) {
    *stride = 2 * format.cols;
    return static_cast<const std::byte*>(rows.data);
  }
  *stride = format.stride_bytes();
  Scratch values(static_cast<std::size_t>(format.cols));
  for (std::int64_t t = 0; t < pass.tokens; ++t) {
    to_float(static_cast<const Bf16*>(rows.data) + t * format.cols, format.cols, values.data());
    format.store(pass.at(quantized) + t * format.stride_bytes(), values.data());
  }
  return pass.at(quantized);
}

template <class Args>
void publish(RankPass& pass, const Args& args, const ConstTensorView* dy) {
  PublishedInputs in{};
  in.tokens = pass.tokens;
  pass.x_rows = publish_rows(pass, args.x, pass.layout.x_quantized, &in.x_stride);
  in.x_offset = offset_from(pass.heap, pass.x_rows);
  if (dy != nullptr) {
    pass.dy_rows = publish_rows(pass, *dy, pass.layout.dy_quantized, &in.dy_stride);
    in.dy_offset = offset_from(pass.heap, pass.dy_rows);
  }
  in.topk_idx_offset = offset_from(pass.heap, args.topk_idx.data);
  in.topk_idx_is_64bit = args.topk_idx.dtype == DType::i64 ? 1 : 0;
  in.topk_weights_offset = offset_from(pass.heap, args.topk_weights.data);
  pass.control(pass.rank()).inputs = in;
}

void make_schedule(RankPass& pass, bool backward) {
  const HeapLayout& l = pass.layout;
  const ScheduleTables tables{pass.at<Run>(l.runs),
                              pass.at<Piece>(l.pieces),
                              pass.at<std::int32_t>(l.block_piece),
                              pass.at<std::int32_t>(l.window_run),
                              {pass.at<Segment>(l.segments[0]), pass.at<Segment>(l.segments[1])}};
  build_schedule(schedule_config(pass.config, backward, kTuning), pass.tokens,
                 pass.routing.block_begin, tables, &pass.schedule);
}

// Everything up to the tasks. Returns with every rank's inputs readable and all tables built.
template <class Args>
void prepare(RankPass& pass, const PeerMemory& peers, int rank, const Args& args,
             const ConstTensorView* dy) {
  pass.peers = peers.table(rank);
  pass.heap = pass.peers.base[rank];
  pass.pass = pass.control(rank).arrived[static_cast<int>(Barrier::first)][rank] + 1;
  pass.tokens = args.x.shape[0];
  pass.topk_weights = static_cast<const float*>(args.topk_weights.data);
  pass.saved = static_cast<std::byte*>(args.saved.data);
  pass.routing = pass.saved != nullptr ? pass.saved_layout.routing.tables(pass.saved)
                                       : pass.layout.routing.tables(pass.heap);
  pass.slot_row = pass.routing.slot_row;
  pass.weights = make_weight_set(pass.config, args.weights, dy != nullptr);
  std::memset(pass.at(pass.layout.counters), 0, pass.layout.counters.bytes);
  publish(pass, args, dy);
  arrive_and_wait(pass, Barrier::first);
  for (int r = 0; r < pass.config.ep_size; ++r) pass.inputs.push_back(pass.control(r).inputs);
}

void finish(const RankPass& pass, PassStats* stats) {
  if (stats == nullptr) return;
  for (std::int64_t e = 0; e < pass.config.num_local_experts(); ++e) {
    stats->rows += pass.routing.expert_rows[e];
  }
  stats->macrobatches = pass.schedule.num_blocks > 0 ? pass.schedule.num_windows : 0;
  stats->bytes_pulled = pass.bytes_pulled;
  stats->bytes_sent_home = pass.bytes_sent_home;
}

void forward_rank(RankPass& pass, const PeerMemory& peers, int rank, const ForwardArgs& args,
                  int workers) {
  pass.out = args.out;
  prepare(pass, peers, rank, args, nullptr);
  if (pass.saved != nullptr) {
    *reinterpret_cast<SavedHeader*>(pass.saved) = {0, 0};  // not valid before the pass is done
  }
  build_routing_tables(pass);
  make_schedule(pass, false);
  execute(pass, workers, run_task, args.stats);
  if (pass.saved != nullptr) {
    *reinterpret_cast<SavedHeader*>(pass.saved) = {kSavedMagic,
                                                   saved_fingerprint(pass.config, pass.tokens)};
  }
}

void backward_rank(RankPass& pass, const PeerMemory& peers, int rank, const BackwardArgs& args,
                   int workers) {
  pass.out = args.dx;
  pass.d_topk_weights = static_cast<float*>(args.d_topk_weights.data);
  pass.grads = make_grad_set(pass.config, args.grads);
  prepare(pass, peers, rank, args, &args.dy);
  make_schedule(pass, true);
  execute(pass, workers, run_task, args.stats);
}

// Runs `run_rank(pass, rank, args)` on a thread per local rank. The error reported is the one that
// made the others give up.
template <class Args, class RunRank>
void run_ranks(PeerMemory& peers, const MoeConfig& config, std::span<const Args> ranks,
               const RunRank& run_rank) {
  std::vector<std::exception_ptr> errors(ranks.size());
  const auto run = [&](std::size_t i) {
    const auto begin = std::chrono::steady_clock::now();
    PassStats* stats = ranks[i].stats;
    if (stats != nullptr) *stats = {};
    const auto pass = std::make_unique<RankPass>(config);
    try {
      run_rank(*pass, peers.local_ranks()[i], ranks[i]);
      finish(*pass, stats);
    } catch (...) {
      announce_failure(*pass);
      errors[i] = std::current_exception();
    }
    if (stats != nullptr) {
      stats->total_s =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < ranks.size(); ++i) threads.emplace_back(run, i);
    if (!ranks.empty()) run(0);
  }
  std::exception_ptr consequence;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const PeerFailed&) {
      consequence = error;
    }
  }
  if (consequence) std::rethrow_exception(consequence);
}

}  // namespace

void run_task(RankPass& pass, const Task& task, Worker& worker) {
  switch (task.stage) {
    case Stage::routing:
      break;  // before there are tasks
    case Stage::dispatch:
      return dispatch(pass, task, worker);
    case Stage::gate_up:
      return gate_up(pass, task, worker);
    case Stage::down:
      return down(pass, task, worker);
    case Stage::send_home:
      return send_home(pass, task, worker);
    case Stage::combine:
      return combine(pass, task, worker);
    case Stage::combine_grad:
      return combine_grad(pass, task, worker);
    case Stage::down_dgrad:
      return down_dgrad(pass, task, worker);
    case Stage::gate_up_dgrad:
      return gate_up_dgrad(pass, task, worker);
    case Stage::down_wgrad:
      return down_wgrad(pass, task, worker);
    case Stage::gate_up_wgrad:
      return gate_up_wgrad(pass, task, worker);
    case Stage::dispatch_grad:
      return dispatch_grad(pass, task, worker);
  }
}

void forward(PeerMemory& peers, const MoeConfig& config, std::span<const ForwardArgs> ranks) {
  const int workers = workers_per_rank(config, ranks.size());
  run_ranks(peers, config, ranks, [&](RankPass& pass, int rank, const ForwardArgs& args) {
    forward_rank(pass, peers, rank, args, workers);
  });
}

void backward(PeerMemory& peers, const MoeConfig& config, std::span<const BackwardArgs> ranks) {
  const int workers = workers_per_rank(config, ranks.size());
  run_ranks(peers, config, ranks, [&](RankPass& pass, int rank, const BackwardArgs& args) {
    backward_rank(pass, peers, rank, args, workers);
  });
}

}  // namespace catamount::cpu
