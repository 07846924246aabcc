#include "random_fill.h"

#include "core/dtype.h"

namespace catamount::bench {
namespace {

// A hash of (seed, index) with good avalanche (constants of MurmurHash3's finalizer).
__device__ std::uint32_t hash(std::uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdULL;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ULL;
  value ^= value >> 33;
  return static_cast<std::uint32_t>(value);
}

__global__ void fill(Bf16* data, std::int64_t n, float stddev, std::uint32_t seed) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    constexpr float kUnit = 1.0F / 4294967296.0F;
    const std::uint64_t key =
        static_cast<std::uint64_t>(seed) << 40 ^ static_cast<std::uint64_t>(i);
    const float u = (static_cast<float>(hash(2 * key)) + 0.5F) * kUnit;
    const float v = static_cast<float>(hash(2 * key + 1)) * kUnit;
    data[i] = to_bf16(stddev * sqrtf(-2.0F * __logf(u)) * __cosf(6.2831853F * v));
  }
}

}  // namespace

cudaError_t fill_normal_bf16(void* data, std::int64_t n, float stddev, std::uint32_t seed) {
  if (n == 0) return cudaSuccess;
  fill<<<1024, 256>>>(static_cast<Bf16*>(data), n, stddev, seed);
  return cudaGetLastError();
}

}  // namespace catamount::bench
