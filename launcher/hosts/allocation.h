/// @file allocation.h — the hosts of a job, and how many ranks each may take.
///
/// Every reader (parse_hosts.h, resource_manager.h, host_manifest.h) makes one Allocation and is pure; only resolve.h
/// touches the network.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

namespace hvd::launcher {

struct HostSlots {
  std::string host;  ///< as the user wrote it, without brackets
  int slots = 1;
  std::string where;              ///< "-H:4", "hosts:3:1": for messages about this host
  std::vector<std::string> gpus;  ///< those that the job may use, as CUDA_VISIBLE_DEVICES names them; empty: all
};

struct Allocation {
  std::vector<HostSlots> hosts;  ///< in the given order, each name once
  std::string source;            ///< "-H", "hostfile hosts", "Slurm job 17", "localhost (default)"
  /// The command that runs a shell on a host, as words; "{host}" stands for the host.  Empty: ssh.
  std::vector<std::string> launch_agent;
  std::string launcher_address{};  ///< where hosts reach hvdrun, by name or number; empty: as the routes say

  // add_host()'s own:
  std::unordered_map<std::string, std::size_t> places;  ///< host → its place in `hosts`
  std::size_t named = 0;                                ///< how often a host was added, by whatever name

  long long total_slots() const;
};

/// Adds @p slots to the host of that name, or the host at the end.  Throws Error{usage} where there are too many.
void add_host(Allocation& allocation, const std::string& host, int slots, const std::string& where);

}  // namespace hvd::launcher
