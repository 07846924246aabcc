// The fused BF16 forward kernel for SM90a: one persistent CTA an SM, warps with roles.
//
//   warp 0      loader       operands of tiles into the ring (TMA)
//   warp 1      scheduler    claims compute tasks, waits for their inputs, mails them
//   warp 2      storer       results out of staging (TMA), then counters
//   warp 3      mover        claims move tasks: rows in, rows home (bulk copies)
//   warps 4-7   consumer 0   tasks 0, 2, 4 ... of the CTA: wgmma, epilogue; final sums
//   warps 8-11  consumer 1   tasks 1, 3, 5 ...
//
// docs/forward_kernel.md draws them with their barriers.
#include "cuda/forward/kernel.h"

#include <algorithm>

#include "cuda/forward/consumer.cuh"
#include "cuda/forward/loader.cuh"
#include "cuda/forward/mover.cuh"
#include "cuda/forward/scheduler.cuh"
#include "cuda/forward/shared_storage.cuh"
#include "cuda/forward/storer.cuh"
#include "cuda/ptx/registers.cuh"

namespace catamount::cuda {
namespace {

inline constexpr int kThreads = (1 + kConsumers) * kWarpgroup;

template <int kRanks>
struct Launch {
  ForwardParams rank[kRanks];
  int ctas_per_rank;
  int comm_ctas;  // of a rank, its last ones: they move rows, the others do not
};

__device__ void init_barriers(SharedStorage& s) {
  for (int i = 0; i < kStages; ++i) {
    ptx::mbarrier_init(&s.full[i], 1);
    ptx::mbarrier_init(&s.empty[i], 4 * kCluster);
  }
  for (int i = 0; i < kMailSlots; ++i) {
    ptx::mbarrier_init(&s.mail_full[i], 1);
    ptx::mbarrier_init(&s.mail_empty[i], kMailReaders);
  }
  for (int i = 0; i < kConsumers; ++i) {
    ptx::mbarrier_init(&s.staging_full[i], 4);
    ptx::mbarrier_init(&s.staging_empty[i], 1);
    ptx::mbarrier_init(&s.turn[i], 4);
  }
  for (int i = 0; i < kClaimSlots; ++i) {
    ptx::mbarrier_init(&s.claim_full[i], 1);
    ptx::mbarrier_init(&s.claim_empty[i], 1);
  }
  for (int i = 0; i < kMoveSlots; ++i) ptx::mbarrier_init(&s.move_full[i], 1);
  ptx::fence_mbarrier_init();
}

__device__ void set_up(const ForwardParams& p, SharedStorage& s, int cta) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    s.schedule = p.state->schedule;
    init_barriers(s);
  }
  __syncthreads();
  if (thread < 2 * kNumStages) {
    s.targets[thread / 2][thread % 2] = static_cast<std::uint32_t>(
        s.schedule.config.tasks_per_unit(static_cast<Stage>(thread / 2), thread % 2 != 0));
  }
  for (int i = thread; i < kConsumers * kTileColumns; i += kThreads) {
    s.bias[i / kTileColumns][i % kTileColumns] = 0.0F;
  }
  if (thread == 0 && cta == 0 && s.schedule.finished_target == 0) arrive_last(p);
  __syncthreads();
  // No CTA reaches into the other's shared memory before it is set up, none leaves before that.
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
}

__device__ void produce(const ForwardParams& p, SharedStorage& s, int warp, int lane,
                        std::uint32_t cta_in_cluster, bool moves) {
  if (warp == 0) {
    if (lane == 0) run_loader(p, s, cta_in_cluster);
  } else if (warp == 1) {
    Scheduler(p, s, cta_in_cluster, lane).run();
  } else if (warp == 2) {
    if (lane == 0) Storer(p, s).run();
  } else if (moves) {
    run_mover(p, s, CopyPipe(s.move_slots, s.move_full), lane);
  }
}

template <int kRanks>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    forward_kernel(const __grid_constant__ Launch<kRanks> launch) {
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& s = *reinterpret_cast<SharedStorage*>(shared_memory);
  const int rank = kRanks == 1 ? 0 : static_cast<int>(blockIdx.x) / launch.ctas_per_rank;
  const int cta = static_cast<int>(blockIdx.x) - rank * launch.ctas_per_rank;
  const ForwardParams& p = launch.rank[rank];
  set_up(p, s, cta);
  const std::uint32_t cta_in_cluster = ptx::cluster_ctarank();

  // Uniform over the warp, and seen to be by the compiler.
  const int warp = __shfl_sync(0xFFFFFFFF, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (cta >= launch.ctas_per_rank - launch.comm_ctas) {
    run_comm(p, s, warp, lane);
  } else if (warp < 4) {
    ptx::setmaxnreg_dec<40>();
    produce(p, s, warp, lane, cta_in_cluster, launch.comm_ctas == 0);
  } else {
    ptx::setmaxnreg_inc<232>();
    run_consumer(p, s,
                 Thread{warp / 4 - 1, static_cast<int>(threadIdx.x) % kWarpgroup, warp % 4, lane});
  }
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
}

// Clusters lie within groups of SMs whose sizes differ from chip to chip: not every SM finds a
// place in one.
template <int kRanks>
cudaError_t max_resident_clusters(int* clusters) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kCluster);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = sizeof(SharedStorage);
  return cudaOccupancyMaxActiveClusters(clusters, forward_kernel<kRanks>, &config);
}

template <int kRanks>
cudaError_t load() {
  return cudaFuncSetAttribute(forward_kernel<kRanks>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(sizeof(SharedStorage)));
}

template <int kRanks>
cudaError_t launch(const ForwardParams* ranks, int num_ranks, const LaunchOptions& options,
                   cudaStream_t stream) {
  Launch<kRanks> arguments{};
  for (int r = 0; r < num_ranks; ++r) arguments.rank[r] = ranks[r];
  int resident = 0;
  if (const cudaError_t error = max_resident_clusters<kRanks>(&resident); error != cudaSuccess) {
    return error;
  }
  const int wanted = (options.num_sms - options.reserve_sms) / kCluster;
  arguments.ctas_per_rank = std::min(resident, wanted) / num_ranks * kCluster;
  arguments.comm_ctas = (options.comm_sms + kCluster - 1) / kCluster * kCluster;
  if (arguments.ctas_per_rank <= arguments.comm_ctas) return cudaErrorInvalidConfiguration;
  forward_kernel<kRanks><<<static_cast<unsigned>(arguments.ctas_per_rank * num_ranks), kThreads,
                           sizeof(SharedStorage), stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace

cudaError_t load_forward() {
  if (const cudaError_t error = load<1>(); error != cudaSuccess) return error;
  return load<kMaxLaunchRanks>();
}

cudaError_t launch_forward(const ForwardParams* ranks, int num_ranks, const LaunchOptions& options,
                           cudaStream_t stream) {
  if (num_ranks == 1) return launch<1>(ranks, 1, options, stream);
  if (num_ranks < 1 || num_ranks > kMaxLaunchRanks) return cudaErrorInvalidValue;
  return launch<kMaxLaunchRanks>(ranks, num_ranks, options, stream);
}

}  // namespace catamount::cuda
