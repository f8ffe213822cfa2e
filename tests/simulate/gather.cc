/// The allgather between nodes, with the runtime's own plans, over a simulated network: hvd-gather [--check].
///
/// One rank a node, with the same number of bytes each. Compares the plan in rounds (gather_plan.h) with one stage, in
/// which each node sends to all nodes. Prints the runtime's choice, the connections of a node, and the time beside the
/// lower bound. The bound is ceil(log2 n) times the time of one message, and (n - 1) parts on a node's link. A node's
/// processor and its link, each way, serve one message at a time. A round begins when the round before it is complete.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "node_links.h"
#include "ops/movement/gather_plan.h"

using namespace hvd::ops;
using namespace hvd::simulate;

namespace {

class Gather {
 public:
  Gather(int nodes, const Network& net) : net_(net), nodes_(nodes), links_(nodes, net) {}

  Time in_rounds(std::size_t bytes) {
    begin();
    const GatherPlan plan(nodes_);
    for (int round = 0; round < plan.rounds(); ++round) {
      const std::vector<Time> from = have_;
      for (int n = 0; n < nodes_; ++n)
        send(n, plan.to(n, round), bytes * static_cast<std::size_t>(plan.count(round)), from);
    }
    return end();
  }
  Time directly(std::size_t bytes) {
    begin();
    const std::vector<Time> from = have_;
    for (int k = 1; k < nodes_; ++k)
      for (int n = 0; n < nodes_; ++n) send(n, (n + k) % nodes_, bytes, from);
    return end();
  }

 private:
  void begin() {
    links_ = NodeLinks(nodes_, net_);
    have_.assign(static_cast<std::size_t>(nodes_), 0);
  }
  Time end() const { return *std::max_element(have_.begin(), have_.end()); }
  void send(int from, int to, std::size_t bytes, const std::vector<Time>& begins) {
    Time& there = have_[static_cast<std::size_t>(to)];
    there = std::max(there, links_.send(from, to, bytes, begins[static_cast<std::size_t>(from)]));
  }

  const Network net_;
  const int nodes_;
  NodeLinks links_;
  std::vector<Time> have_;  ///< [nodes] the time when all parts of a round have arrived
};

}  // namespace

int main(int argc, char** argv) {
  const bool check = argc > 1 && std::strcmp(argv[1], "--check") == 0;
  const Network net;
  bool good = true;
  std::printf("  nodes   bytes each |   takes  conn. |  in rounds, us  of the bound | everybody to everybody, us\n");
  for (const int nodes :
       check ? std::vector<int>{2, 12, 64} : std::vector<int>{2, 4, 12, 64, 100, 1000, 1024, 4096, 16384})
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 10, std::size_t{1} << 20}) {
      const std::size_t all = bytes * static_cast<std::size_t>(nodes);
      const GatherPlan plan(nodes);
      const bool rounds = GatherPlan::is_faster(nodes, all, model_of(net));
      Gather gather(nodes, net);
      const Time time = gather.in_rounds(bytes), direct = nodes <= 4096 ? gather.directly(bytes) : 0;
      const Time bound = plan.rounds() * net.round(1) + (nodes - 1) * net.wire(bytes);
      std::printf("%7d %12zu | %7s %6d | %14.1f %13.2f | %26.1f\n", nodes, bytes, rounds ? "rounds" : "direct",
                  rounds ? plan.rounds() : nodes - 1, time / 1e3, time / bound, direct / 1e3);
      std::fflush(stdout);
      if (time > 1.3 * bound) good = false;
      if (direct > 0 && rounds && time > 1.1 * direct) good = false;
    }
  return check && !good ? 1 : 0;
}
