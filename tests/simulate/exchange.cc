/// The allreduce between nodes, with the runtime's own plans, over a simulated network: hvd-exchange [--check].
///
/// One carrier a node. For each number of nodes and of bytes it prints the plan that the runtime chooses: its rounds,
/// the messages and connections of a node, and the time beside the bound. The bound of small sums is ceil(log2 n) times
/// the time of one message. The bound of large sums is 2 (n - 1) / n bytes on a node's link. A further column is the
/// plan of one stage: each node sends to all nodes.
///
/// A slice never overtakes the one before it, and as many are in progress as in the runtime. A node's processor and its
/// link, each way, serve one message at a time. With very many slices the first ones are simulated, and the others
/// follow at the same rate.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "node_links.h"
#include "ops/allreduce/exchange_plan.h"
#include "ops/node_order.h"
#include "ops/stage.h"

using namespace hvd::ops;
using namespace hvd::simulate;

namespace {

constexpr std::size_t largest_slice = 512 << 10;  ///< memory::Geometry's

class Exchange {
 public:
  Exchange(int nodes, const ExchangePlan& plan, std::uint64_t under_way, const Network& net)
      : plan_(plan), under_way_(under_way), count_(static_cast<std::size_t>(nodes)), links_(nodes, net) {}
  /// Returns the time when the last node has the last of @p slices slices.
  Time run(std::size_t slices, std::size_t bytes) {
    const auto rounds = static_cast<std::size_t>(plan_.rounds());
    // ready[s % depth][round][node]: the time when slice s has passed the rounds before
    const std::size_t depth = under_way_ + 1;
    std::vector<std::vector<std::vector<Time>>> ready(
        depth, std::vector<std::vector<Time>>(rounds + 1, std::vector<Time>(count_, 0)));
    for (std::size_t wave = 0; wave < slices + rounds - 1; ++wave)
      for (std::size_t r = 0; r < rounds && r <= wave; ++r) {
        const std::size_t s = wave - r;
        if (s >= slices) continue;
        auto& mine = ready[s % depth];
        if (r == 0)
          for (std::size_t n = 0; n < count_; ++n)
            mine[0][n] = s >= under_way_ ? ready[(s - under_way_) % depth][rounds][n] : 0;
        round(static_cast<int>(r), bytes, mine[r], mine[r + 1]);
      }
    const auto& last = ready[(slices - 1) % depth][rounds];
    return *std::max_element(last.begin(), last.end());
  }

 private:
  void round(int r, std::size_t bytes, const std::vector<Time>& from, std::vector<Time>& to) {
    const int stage = r < plan_.stages() ? r : 2 * plan_.stages() - 1 - r;
    std::size_t part = bytes;
    if (!plan_.whole())
      for (int s = 0; s <= stage; ++s)
        part = std::max<std::size_t>(1, part / static_cast<std::size_t>(plan_.stage(s).group));
    to = from;
    const int group = plan_.stage(stage).group;
    for (int k = 1; k < group; ++k)  // each node begins with the next one: no node gets all messages at once
      for (int n = 0; n < static_cast<int>(count_); ++n) {
        const int peer = plan_.peer(n, stage, (plan_.digit(n, stage) + k) % group);
        Time& there = to[static_cast<std::size_t>(peer)];
        there = std::max(there, links_.send(n, peer, part, from[static_cast<std::size_t>(n)]));
      }
  }
  const ExchangePlan& plan_;
  const std::uint64_t under_way_;
  const std::size_t count_;
  NodeLinks links_;
};

Time time_of(int nodes, const ExchangePlan& plan, std::size_t bytes, std::size_t slice, const Network& net) {
  const std::size_t slices = (bytes + slice - 1) / slice;
  const std::uint64_t under_way = model_of(net).slices_under_way(plan.rounds(), slice);
  const std::size_t some = nodes > 4096 ? 24 : 64;
  if (slices <= some) return Exchange(nodes, plan, under_way, net).run(slices, slice);
  const Time half = Exchange(nodes, plan, under_way, net).run(some / 2, slice);
  const Time whole = Exchange(nodes, plan, under_way, net).run(some, slice);
  return whole + static_cast<Time>(slices - some) * (whole - half) / static_cast<Time>(some / 2);
}

int connections(const ExchangePlan& plan) {
  int all = 0;
  for (int s = 0; s < plan.stages(); ++s) all += plan.stage(s).group - 1;
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const bool check = argc > 1 && std::strcmp(argv[1], "--check") == 0;
  const Network net;
  bool good = true;
  std::printf(
      "  nodes       bytes |  way  stages rounds  msgs  conn. |         us   of the bound | everybody to everybody, "
      "us\n");
  for (const int nodes :
       check ? std::vector<int>{2, 12, 64} : std::vector<int>{2, 4, 12, 64, 100, 1000, 1024, 4096, 16384})
    for (const std::size_t bytes :
         {std::size_t{4}, std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{64} << 20, std::size_t{1} << 30}) {
      const std::size_t slice = std::min(bytes, Cut::of(bytes, largest_slice, 1).chunk);
      const ExchangePlan plan = ExchangePlan::choose(levels_of_order(nodes, false), bytes, slice, model_of(net));
      const Time time = time_of(nodes, plan, bytes, slice, net);
      const bool small = bytes <= 4;
      const Time bound = small ? Network::log2(nodes) * net.round(bytes)
                               : 2.0 * (nodes - 1) / nodes * static_cast<double>(bytes) * net.G;
      const double of_bound = small ? time / bound : bound / time;
      const ExchangePlan flat(levels_of_order(nodes, false), nodes, small);
      const Time all = nodes <= 1024 ? time_of(nodes, flat, bytes, slice, net) : 0;
      std::printf("%7d %11zu | %5s %6d %6d %5d %6d | %10.1f %8.2f %6s | %10.1f\n", nodes, bytes,
                  plan.whole() ? "whole" : "parts", plan.stages(), plan.rounds(),
                  (plan.whole() ? 1 : 2) * connections(plan), connections(plan), time / 1e3, of_bound,
                  small ? "times" : "", all / 1e3);
      std::fflush(stdout);
      if ((small && of_bound > 1.3) || (bytes >= std::size_t{1} << 30 && of_bound < 0.9)) good = false;
    }
  return check && !good ? 1 : 0;
}
