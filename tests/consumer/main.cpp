// Uses the installed headers and library, and nothing else of the tree.
#include <catamount/error.h>
#include <catamount/moe.h>
#include <catamount/peer_memory.h>
#include <catamount/tensor.h>
#include <catamount/version.h>

#include <cstdio>
#include <cstring>

int main() {
  std::printf("catamount %s\n", catamount::kVersion);
  catamount::MoeConfig config;
  config.hidden = 7;  // not a multiple of 8
  config.intermediate = 64;
  config.num_experts = 8;
  config.topk = 2;
  config.max_tokens = 16;
  try {
    catamount::validate(config);
  } catch (const catamount::Error& error) {
    return error.code() == catamount::ErrorCode::invalid_argument ? 0 : 1;
  }
  std::puts("expected an Error(invalid_argument) for hidden = 7");
  return 1;
}
