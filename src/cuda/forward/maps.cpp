// The host's half of the forward kernel's tiles: how the TMA unit sees every tensor.
#include "cuda/device/tensor_map.h"
#include "cuda/forward/boxes.h"
#include "cuda/forward/kernel.h"

namespace catamount::cuda {
namespace {

// Collects the first error.
class Maps {
 public:
  explicit Maps(cudaError_t* error) : error_(error) {}

  void rows(CUtensorMap* map, const void* data, std::int64_t rows, std::int64_t cols, int box_cols,
            int box_rows, CUtensorMapSwizzle swizzle) {
    add(map, data, 2, {{cols, rows, 1}, {cols, rows * cols}, {box_cols, box_rows, 1}, swizzle});
  }
  void operand(CUtensorMap* map, const void* data, std::int64_t rows, std::int64_t cols) {
    this->rows(map, data, rows, cols, kBlockK, kTileRows, CU_TENSOR_MAP_SWIZZLE_128B);
  }
  void weight(CUtensorMap* map, const void* data, std::int64_t planes, std::int64_t plane_stride,
              std::int64_t rows, std::int64_t cols, int box_rows) {
    add(map, data, 3,
        {{cols, rows, planes},
         {cols, plane_stride},
         {kBlockK, box_rows, 1},
         CU_TENSOR_MAP_SWIZZLE_128B});
  }
  void pre_activations(CUtensorMap* map, const void* data, std::int64_t rows, std::int64_t width) {
    add(map, data, 3,
        {{width, 2, rows},
         {width, 2 * width},
         {kBoxColumnsH, 1, kTileRows},
         CU_TENSOR_MAP_SWIZZLE_64B});
  }

 private:
  // A tensor that is absent needs no map.
  void add(CUtensorMap* map, const void* data, int dims, const MapShape& shape) {
    if (data == nullptr || *error_ != cudaSuccess) return;
    *error_ = make_tensor_map(map, data, dims, shape);
  }

  cudaError_t* error_;
};

struct ExpertTensorsOnDevice {
  const Bf16 *x, *x_kept, *gate, *up, *down;
  bool fused;
  Bf16 *h, *y, *pre_activations;
  std::int64_t rows, x_rows, experts, width;
};

void make_maps(Maps& maps, const ExpertTensorsOnDevice& t, std::int64_t hidden, ExpertMaps* out) {
  const std::int64_t plane = t.width * hidden;
  const Bf16* up = t.fused ? t.gate + plane : t.up;
  const std::int64_t stride = t.fused ? 2 * plane : plane;
  maps.operand(&out->x, t.x, t.x_rows, hidden);
  maps.operand(&out->x_kept, t.x_kept, t.rows, hidden);
  maps.weight(&out->gate, t.gate, t.experts, stride, t.width, hidden, kGateColumns);
  maps.weight(&out->up, up, t.experts, stride, t.width, hidden, kGateColumns);
  maps.weight(&out->down, t.down, t.experts, plane, hidden, t.width, kTileColumns / 2);
  maps.operand(&out->h_load, t.h, t.rows, t.width);
  maps.rows(&out->h_store, t.h, t.rows, t.width, kBoxColumnsH, kTileRows,
            CU_TENSOR_MAP_SWIZZLE_64B);
  maps.rows(&out->y, t.y, t.rows, hidden, kBoxColumnsY, kHalfRows, CU_TENSOR_MAP_SWIZZLE_128B);
  maps.pre_activations(&out->pre_activations, t.pre_activations, t.rows, t.width);
}

}  // namespace

cudaError_t make_forward_maps(ForwardParams* p) {
  cudaError_t error = cudaSuccess;
  Maps maps(&error);
  make_maps(maps,
            {p->x_pool, p->kept_x, p->gate, p->up, p->down, p->fused_gate_up, p->h_pool, p->y_pool,
             p->kept_pre_activations, p->capacity_blocks * kBlockRows, p->x_blocks * kBlockRows,
             p->num_local_experts, p->intermediate},
            p->hidden, &p->routed);
  if (p->shared_intermediate > 0) {
    make_maps(maps,
              {p->x, nullptr, p->shared_gate, p->shared_up, p->shared_down, p->shared_fused_gate_up,
               p->shared_h, p->shared_y, p->kept_shared_pre_activations, p->tokens, p->tokens, 1,
               p->shared_intermediate},
              p->hidden, &p->shared);
  }
  return error;
}

// Runs of 16 row blocks keep a run's rows of x in the L2 cache while the weights pass by. down
// trails gate_up by more than what all CTAs hold, so that it never waits for a tile in the making.
ScheduleTuning forward_tuning(const MoeConfig& config) {
  const std::int32_t rows_per_move = config.hidden > 4096 ? 8 : 16;
  return {TileSet::sm90_bf16, 16, 600, 4, rows_per_move, 8};
}

}  // namespace catamount::cuda
