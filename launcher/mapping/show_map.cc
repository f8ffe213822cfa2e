#include "launcher/mapping/show_map.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "launcher/mapping/gpu_ways.h"

namespace hvd::launcher {

namespace {

using Row = std::vector<std::string>;

std::string gpu_text(const placement::GpuInfo& gpu) {
  const std::string& id = gpu.pci.empty() ? gpu.uuid : gpu.pci;
  return gpu.name.empty() ? id : id + " " + gpu.name;
}

std::string node_text(int node) { return node < 0 ? "-" : std::to_string(node); }

Row row_of(const MappedRank& p) {
  Row row{std::to_string(p.rank), formatted("{}/{}", p.local_rank, p.local_size)};
  if (!p.share) {
    row.insert(row.end(), {"?", "?", "its share", "?", "?", "?"});
    return row;
  }
  const placement::RankResources& s = *p.share;
  row.push_back(s.gpu ? gpu_text(*s.gpu) : "-");
  row.push_back(node_text(s.node));
  row.push_back(s.cpus.empty() ? "any" : ranges(s.cpus));
  row.push_back(std::to_string(s.threads));
  row.push_back(s.memory_node < 0 ? "any" : formatted("node {}", s.memory_node));
  row.push_back(s.nic.empty() ? "-" : s.nic);
  return row;
}

/// Columns are as wide as their widest word.  The first two are numbers, and aligned to the right.
std::string table_text(const std::vector<Row>& rows) {
  std::vector<std::size_t> width(rows[0].size());
  for (const Row& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  std::string out;
  for (const Row& row : rows) {
    std::string line = " ";
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string blanks(width[c] - row[c].size(), ' ');
      line += " " + (c < 2 ? blanks + row[c] : row[c] + blanks) + " ";
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

}  // namespace

std::string machine_text(const placement::Machine& machine) {
  std::set<int> nodes;
  long long threads = 0;
  for (const placement::Core& c : machine.cores) nodes.insert(c.node), threads += static_cast<long long>(c.cpus.size());
  return join({count_of(static_cast<long long>(nodes.size()), "NUMA node"),
               count_of(static_cast<long long>(machine.cores.size()), "core"), count_of(threads, "thread"),
               count_of(static_cast<long long>(machine.gpus.size()), "GPU")},
              ", ");
}

std::string map_text(const JobMap& map, const Machines& machines) {
  std::string out;
  for (std::size_t h = 0; h < map.hosts.size(); ++h) {
    out += formatted("{}: {}\n", map.hosts[h].name,
                     machines[h] ? machine_text(*machines[h]) : "not looked at; it decides by itself");
    std::vector<Row> rows{{"rank", "local", "GPU", "node", "cores", "threads", "memory", "NIC"}};
    for (const MappedRank& p : map.ranks)
      if (p.host == static_cast<int>(h)) rows.push_back(row_of(p));
    out += table_text(rows);
    if (machines[h]) out += ways_text(*machines[h]);
  }
  return out;
}

std::string map_json(const JobMap& map, const Machines& machines) {
  using nlohmann::ordered_json;
  ordered_json hosts = ordered_json::array();
  for (std::size_t h = 0; h < map.hosts.size(); ++h) {
    ordered_json host{{"host", map.hosts[h].name}, {"known", machines[h].has_value()}};
    if (machines[h]) add_gpus(host, *machines[h]);
    ordered_json ranks = ordered_json::array();
    for (const MappedRank& p : map.ranks) {
      if (p.host != static_cast<int>(h)) continue;
      ordered_json rank{{"rank", p.rank}, {"local_rank", p.local_rank}};
      if (p.share) {
        const placement::RankResources& s = *p.share;
        rank["gpu"] = s.gpu ? ordered_json{{"pci", s.gpu->pci}, {"uuid", s.gpu->uuid}, {"name", s.gpu->name}}
                            : ordered_json(nullptr);
        rank["numa_node"] = s.node;
        rank["cpus"] = s.cpus;
        rank["threads"] = s.threads;
        rank["memory_node"] = s.memory_node;
        rank["nic"] = s.nic;
      }
      ranks.push_back(std::move(rank));
    }
    host["ranks"] = std::move(ranks);
    hosts.push_back(std::move(host));
  }
  return ordered_json{{"np", map.ranks.size()}, {"source", map.source}, {"hosts", hosts}}.dump(
             2, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace hvd::launcher
