// Device memory full of random numbers.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace catamount::bench {

// `n` BF16 numbers of a normal distribution. The same seed gives the same numbers.
cudaError_t fill_normal_bf16(void* data, std::int64_t n, float stddev, std::uint32_t seed);

}  // namespace catamount::bench
