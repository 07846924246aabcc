// CUDA calls on the host: an Error for what fails, memory that frees itself, the current device.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string_view>

#include "core/check.h"

namespace catamount::cuda {

inline void check_cuda(cudaError_t error, std::string_view what,
                       ErrorCode code = ErrorCode::internal) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // not sticky: the next call starts clean
  fail(code, "{}: {}", what, cudaGetErrorString(error));
}

struct FreeDevice {
  void operator()(void* p) const { cudaFree(p); }
};
template <class T>
using DevicePointer = std::unique_ptr<T, FreeDevice>;

// Zeroed memory of the current device.
template <class T>
DevicePointer<T> allocate_device(std::size_t bytes, std::string_view what) {
  void* p = nullptr;
  check_cuda(cudaMalloc(&p, bytes), what, ErrorCode::not_available);
  DevicePointer<T> owner(static_cast<T*>(p));
  check_cuda(cudaMemset(p, 0, bytes), what);
  return owner;
}

struct FreeHost {
  void operator()(void* p) const { cudaFreeHost(p); }
};
template <class T>
using PinnedPointer = std::unique_ptr<T, FreeHost>;

// Makes a device current until the end of the scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    if (device != before_) check_cuda(cudaSetDevice(device), "cudaSetDevice");
  }
  ~DeviceScope() { cudaSetDevice(before_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
};

}  // namespace catamount::cuda
