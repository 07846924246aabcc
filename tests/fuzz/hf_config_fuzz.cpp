// Any config.json is either a layer that validates, at any size the library takes, or an Error.
// What is accepted must also give sizes: no overflow on the way to heap_bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "catamount/moe.h"
#include "model/hf_config.h"

namespace {

void check_sizes(const catamount::model::HfConfig& hf) {
  using namespace catamount;
  MoeConfig config;
  config.hidden = hf.hidden;
  config.intermediate = hf.intermediate;
  config.num_experts = hf.num_experts;
  config.topk = hf.router.topk;
  config.shared_intermediate = hf.shared_intermediate;
  config.swiglu = hf.swiglu;
  config.max_tokens = 1000;
  try {
    validate(config);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) std::abort();
    return;
  }
  if (heap_bytes(config) == 0 || saved_bytes(config) == 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace catamount;
  try {
    const auto config = model::parse_hf_config({reinterpret_cast<const char*>(data), size});
    if (config.hidden <= 0 || config.intermediate <= 0 || config.num_experts <= 0) std::abort();
    check_sizes(config);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io) std::abort();
  }
  return 0;
}
