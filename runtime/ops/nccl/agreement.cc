#include "ops/nccl/agreement.h"

#include <algorithm>
#include <cstring>

#include "ops/nccl/library.h"

namespace hvd::nccl {
namespace {

std::string rank(std::span<const int> world_ranks, std::size_t r) { return "rank " + std::to_string(world_ranks[r]); }

/// Two ranks on one GPU that NCCL would refuse; empty: none.
std::string shared_gpu(std::span<const Card> cards, std::span<const int> world_ranks) {
  for (std::size_t a = 0; a < cards.size(); ++a)
    for (std::size_t b = a + 1; b < cards.size(); ++b) {
      if (cards[a].host != cards[b].host || std::strcmp(cards[a].uuid, cards[b].uuid) != 0) continue;
      if (cards[a].version >= shared_gpu_version && cards[a].shares_gpu && cards[b].shares_gpu) continue;
      return rank(world_ranks, a) + " and " + rank(world_ranks, b) + " use one GPU, " + cards[a].uuid +
             " (NCCL 2.30 and later can, with NCCL_MULTI_RANK_GPU_ENABLE=1)";
    }
  return {};
}

/// Lanes and forms: what all ranks ask for, as far as it can be had.
void decide_forms(Decision& d, std::span<const Card> cards, std::span<const std::size_t> nodes) {
  d.splits = d.inherits = true;
  d.lanes = cards.front().lanes;
  d.sums_by_nodes = d.gathers_by_nodes = true;
  for (const Card& c : cards) {
    d.splits &= c.splits != 0;
    d.inherits &= c.inherited != 0;
    d.lanes = std::min(d.lanes, c.lanes);
    d.sums_by_nodes &= c.sums_by_nodes != 0;
    d.gathers_by_nodes &= c.gathers_by_nodes != 0;
  }
  const bool several = nodes.size() > 1 && *std::max_element(nodes.begin(), nodes.end()) > 1;
  d.sums_by_nodes &= several, d.gathers_by_nodes &= several;
  const bool by_nodes = d.sums_by_nodes || d.gathers_by_nodes;
  std::string why;
  if (!d.splits) why = "NCCL has no ncclCommSplit";
  if (!why.empty() && d.lanes > 1) d.notes.push_back("NCCL uses one stream: " + why), d.lanes = 1;
  for (const std::size_t n : nodes)
    if (why.empty() && n != nodes[0])
      why = "nodes have " + std::to_string(nodes[0]) + " and " + std::to_string(n) + " ranks";
  if (!why.empty() && by_nodes) {
    d.notes.push_back("NCCL's operations are not made node by node: " + why);
    d.sums_by_nodes = d.gathers_by_nodes = false;
  }
}

/// The lanes share what all ranks' devices have left.
void decide_room(Decision& d, std::span<const Card> cards, std::span<const int> world_ranks) {
  const auto least =
      std::min_element(cards.begin(), cards.end(), [](const Card& a, const Card& b) { return a.blocks < b.blocks; });
  const auto at = static_cast<std::size_t>(least - cards.begin());
  if (least->blocks == 0) {
    d.reason = "the GPU of " + rank(world_ranks, at) + " has no room for one more communicator of NCCL";
    return;
  }
  if (d.lanes > least->blocks) {
    d.notes.push_back("NCCL uses " + std::to_string(least->blocks) + " of " + std::to_string(d.lanes) +
                      " streams: the GPU of " + rank(world_ranks, at) + " has no room for more");
    d.lanes = least->blocks;
  }
  d.blocks = least->blocks / d.lanes;
}

void decide_means(Decision& d, std::span<const Card> cards) {
  d.means = {true, true, true};
  bool float8 = true;  // NCCL can add them up
  for (const Card& c : cards) {
    d.means.kernels &= c.kernels != 0;
    d.means.wide &= c.wide != 0;
    d.means.float8 &= c.float8 != 0;
    float8 &= c.version >= float8_version && c.generation >= float8_generation;
  }
  d.means.wide &= d.means.kernels;
  if (d.means.float8 && !float8)
    d.notes.push_back("NCCL adds up no 8-bit floats: that takes 2.24 or later, and compute capability 9.0 on all GPUs");
  d.means.float8 = float8 && (d.means.float8 || !d.means.kernels);
}

/// nccl, or the reason why not.
void decide_nccl(Decision& d, std::span<const Card> cards, std::span<const int> world_ranks,
                 std::span<const std::size_t> nodes) {
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if (cards[r].version == 0) {
      d.reason = rank(world_ranks, r) + ": " + cards[r].why;
      return;
    }
    if (cards[r].version != cards[0].version) {
      d.reason = "NCCL is " + version_text(cards[0].version) + " on " + rank(world_ranks, 0) + " and " +
                 version_text(cards[r].version) + " on " + rank(world_ranks, r);
      return;
    }
  }
  d.reason = shared_gpu(cards, world_ranks);
  decide_forms(d, cards, nodes);
  if (d.reason.empty()) decide_room(d, cards, world_ranks);
  d.nccl = d.reason.empty();
}

}  // namespace

Card sound(Card c) {
  c.uuid[sizeof c.uuid - 1] = c.why[sizeof c.why - 1] = '\0';
  c.lanes = std::max(c.lanes, 1);
  c.blocks = std::max(c.blocks, 0);
  c.through_host &= gpu_kinds;
  return c;
}

Decision decide(std::span<const Card> cards, std::span<const int> world_ranks, std::span<const std::size_t> nodes) {
  Decision d;
  for (const Card& c : cards) d.through_host |= c.through_host;
  decide_means(d, cards);
  if (d.through_host != gpu_kinds) decide_nccl(d, cards, world_ranks, nodes);
  return d;
}

}  // namespace hvd::nccl
