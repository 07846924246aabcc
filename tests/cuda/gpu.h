// What the GPU tests share: skipping without a GPU, and device copies of host tensors.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "catamount/tensor.h"
#include "cuda/device/check_cuda.h"

namespace catamount::test {

// Tests of this fixture skip themselves on machines without a Hopper GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (num_gpus() == 0) GTEST_SKIP() << "no Hopper GPU in this machine";
  }

 public:
  static int num_gpus() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
    for (int d = 0; d < count; ++d) {
      int major = 0;
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d);
      if (major != 9) return 0;
    }
    return count;
  }
};

// Device memory that lives as long as this object.
class DeviceArena {
 public:
  void* allocate(std::size_t bytes) {
    owned_.push_back(cuda::allocate_device<std::byte>(bytes + 16, "a test's tensor"));
    return owned_.back().get();
  }
  void* upload(const void* host, std::size_t bytes) {
    void* device = allocate(bytes);
    cuda::check_cuda(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "upload");
    return device;
  }
  // The same tensor on the device. Empty tensors get a pointer too.
  template <class Pointer>
  BasicTensorView<Pointer> upload(const BasicTensorView<Pointer>& host) {
    BasicTensorView<Pointer> device = host;
    if (host.present()) device.data = upload(host.data, host.bytes());
    return device;
  }

 private:
  std::vector<cuda::DevicePointer<std::byte>> owned_;
};

template <class T>
std::vector<T> download(const T* device, std::size_t n) {
  std::vector<T> host(n);
  cuda::check_cuda(cudaMemcpy(host.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost),
                   "download");
  return host;
}

}  // namespace catamount::test
