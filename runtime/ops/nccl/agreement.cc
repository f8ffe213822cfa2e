#include "ops/nccl/agreement.h"

#include <cstring>

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

}  // namespace

Decision decide(std::span<const Card> cards, std::span<const int> world_ranks) {
  Decision d;
  d.means = {true, true};
  for (const Card& c : cards) {
    d.means.kernels &= c.kernels != 0;
    d.means.wide &= c.wide != 0;
  }
  d.means.wide &= d.means.kernels;
  for (const Card& c : cards)
    if (c.stages) return d;
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if (cards[r].version == 0) {
      d.reason = rank(world_ranks, r) + ": " + cards[r].why;
      return d;
    }
    if (cards[r].version != cards[0].version) {
      d.reason = "NCCL is " + std::to_string(cards[0].version) + " on " + rank(world_ranks, 0) + " and " +
                 std::to_string(cards[r].version) + " on " + rank(world_ranks, r);
      return d;
    }
  }
  d.reason = shared_gpu(cards, world_ranks);
  d.nccl = d.reason.empty();
  return d;
}

}  // namespace hvd::nccl
