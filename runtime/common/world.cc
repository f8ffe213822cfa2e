#include "common/world.h"

#include <map>
#include <utility>

namespace hvd {

World World::of(int rank, const std::vector<int>& hosts, int ranks_per_node) {
  World w;
  w.rank = rank;
  w.size = static_cast<int>(hosts.size());
  w.in_rank_order = ranks_per_node == 1;
  std::map<int, int> seen;  // number of ranks so far, by host
  std::map<std::pair<int, int>, int> number;
  for (int r = 0; r < w.size; ++r) {
    const int host = hosts[static_cast<std::size_t>(r)];
    const int index = seen[host]++;
    const std::pair key{host, ranks_per_node > 0 ? index / ranks_per_node : 0};
    const auto [it, fresh] = number.emplace(key, static_cast<int>(w.nodes.size()));
    if (fresh) w.nodes.emplace_back();
    auto& node = w.nodes[static_cast<std::size_t>(it->second)];
    w.node_of.push_back(it->second);
    w.local_of.push_back(static_cast<int>(node.size()));
    node.push_back(r);
    w.world_ranks.push_back(r);
  }
  return w;
}

World World::subset(const std::vector<int>& members) const {
  std::vector<int> hosts;
  int mine = 0;
  for (int m : members) {
    if (m == rank) mine = static_cast<int>(hosts.size());
    hosts.push_back(node_of[static_cast<std::size_t>(m)]);
  }
  World w = of(mine, hosts, 0);
  w.in_rank_order = in_rank_order;
  for (std::size_t i = 0; i < members.size(); ++i) w.world_ranks[i] = world_rank(members[i]);
  return w;
}

bool World::homogeneous() const {
  for (const auto& n : nodes)
    if (n.size() != nodes.front().size()) return false;
  return true;
}

int World::cross_rank() const {
  int before = 0;
  for (int n = 0; n < node(); ++n) before += static_cast<int>(nodes[static_cast<std::size_t>(n)].size()) > local_rank();
  return before;
}

int World::cross_size() const {
  int count = 0;
  for (const auto& n : nodes) count += static_cast<int>(n.size()) > local_rank();
  return count;
}

}  // namespace hvd
