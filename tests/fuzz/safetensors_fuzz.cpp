// Any bytes are either a safetensors file whose tensors lie within them, or an Error(io).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "catamount/error.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace catamount;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    for (const auto& [name, tensor] : io::parse_safetensors(bytes).tensors) {
      if (io::tensor_bytes(tensor.dtype, tensor.shape) != tensor.data.size()) std::abort();
      const bool inside = tensor.data.data() >= bytes.data() &&
                          tensor.data.data() + tensor.data.size() <= bytes.data() + bytes.size();
      if (!inside) std::abort();
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io) std::abort();
  }
  return 0;
}
