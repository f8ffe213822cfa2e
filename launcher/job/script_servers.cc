#include "launcher/job/script_servers.h"

#include <algorithm>

namespace hvd::launcher {

namespace {

/// The address at which other ranks reach this rank.
std::string address_of_rank(const Job& job, int rank) {
  if (job.map.all_local()) return "127.0.0.1";
  const MappedHost& host = job.map.host_of(rank);
  if (host.local) return job.reach_us.front();
  const auto found = std::ranges::find(job.hosts, host.name, &ResolvedHost::host);
  return found == job.hosts.end() || found->address.empty() ? host.name : found->address;
}

ServerAddress server_of_rank(const Job& job, int rank, const std::string& job_id, const std::string& purpose,
                             std::vector<HeldPort>& held) {
  const std::string address = address_of_rank(job, rank);
  if (!job.map.host_of(rank).local) return {address, port_on_another_host(job_id, purpose)};
  return {address, held.emplace_back().number()};
}

}  // namespace

int port_on_another_host(const std::string& job_id, const std::string& purpose) {
  constexpr unsigned first = 20000, end = 32768;  // /proc/sys/net/ipv4/ip_local_port_range begins at 32768
  unsigned sum = 0;
  for (const char letter : job_id + purpose) sum = sum * 31 + static_cast<unsigned char>(letter);
  return static_cast<int>(first + sum % (end - first));
}

std::string text_of(const ServerAddress& server) {
  const bool six = server.address.find(':') != std::string::npos;
  return (six ? "[" + server.address + "]" : server.address) + ":" + std::to_string(server.port);
}

ScriptServers script_servers(const Job& job, const std::string& job_id) {
  ScriptServers all;
  all.torch = server_of_rank(job, 0, job_id, "torch", all.held);
  all.jax = server_of_rank(job, 0, job_id, "jax", all.held);
  if (job.settings.flag("tf-config"))
    for (const MappedRank& r : job.map.ranks)
      all.tensorflow.push_back(server_of_rank(job, r.rank, job_id, "tensorflow " + std::to_string(r.rank), all.held));
  return all;
}

void use_ports_of_rank_0(ScriptServers& servers, const std::vector<int>& ports) {
  if (ports.size() < 2) return;
  servers.torch.port = ports[0];
  servers.jax.port = ports[1];
}

}  // namespace hvd::launcher
