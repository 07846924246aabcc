// From the caller's tensors to what the kernels get: checks of pointers, and addresses.
#pragma once

#include "catamount/moe.h"
#include "cuda/peers/cuda_peers.h"

namespace catamount::cuda {

// The rank's parameters, without tensor maps. Bytes between members are zero: equal arguments give
// equal bytes.
RoutingParams routing_params(const CudaPeers& peers, const LocalRank& local,
                             const MoeConfig& config, const ForwardArgs& args);
ForwardParams forward_params(const CudaPeers& peers, const LocalRank& local,
                             const MoeConfig& config, const ForwardArgs& args);

// Raises Error(invalid_argument) naming the tensor that no GPU can read, or not as fast as it must.
void check_device_tensors(int rank, const ForwardArgs& args);

// Copies what peers must read and cannot see where it is; nothing to do with a shared address
// space.
void copy_published(const CudaPeers& peers, const LocalRank& local, const MoeConfig& config,
                    const ForwardArgs& args, cudaStream_t stream);

}  // namespace catamount::cuda
