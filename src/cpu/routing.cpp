// routing: reads the top-k ids of all ranks, checks them, fills this rank's tables.
#include "core/routing.h"

#include "core/check.h"
#include "cpu/barrier.h"
#include "cpu/stages.h"

namespace catamount::cpu {

void build_routing_tables(RankPass& pass) {
  const MoeConfig& config = pass.config;
  const RoutingShape shape{pass.rank(), config.ep_size, config.num_experts, config.topk};
  std::vector<RankSlots> slots;
  for (int r = 0; r < config.ep_size; ++r) {
    const PublishedInputs& in = pass.inputs[static_cast<std::size_t>(r)];
    const std::byte* base = pass.peers.base[r];
    slots.push_back({in.tokens, base + in.topk_idx_offset, in.topk_idx_is_64bit != 0,
                     reinterpret_cast<const float*>(base + in.topk_weights_offset)});
    if (r != pass.rank()) {
      pass.bytes_pulled += in.tokens * config.topk * ((in.topk_idx_is_64bit != 0 ? 8 : 4) + 4);
    }
  }
  // Every rank finds the same fault. They part at the last barrier, so that nobody's ids go away
  // while another still reads them.
  if (const RoutingFault fault = find_bad_id(shape, slots.data()); fault.found) {
    arrive_and_wait(pass, Barrier::last);
    fail(ErrorCode::invalid_routing, "topk_idx[{}, {}] of rank {} must be in [-1, {}), got {}",
         fault.token, fault.slot, fault.rank, config.num_experts, fault.expert);
  }
  build_routing(shape, slots.data(), pass.routing, pass.at<std::int64_t>(pass.layout.next_row));
}

}  // namespace catamount::cpu
