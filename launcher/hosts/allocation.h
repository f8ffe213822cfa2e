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
  std::vector<std::string> gpus;  ///< GPUs that the job may use, by CUDA_VISIBLE_DEVICES' names; empty: all
};

struct Allocation {
  std::vector<HostSlots> hosts;  ///< in the given order, each name once
  std::string source;            ///< "-H", "hostfile hosts", "Slurm job 17", "localhost (default)"
  /// The command that runs a shell on a host, as words; "{host}" stands for the host.  Empty: ssh.
  std::vector<std::string> launch_agent;
  std::string launcher_address{};  ///< at which hosts reach hvdrun, a name or a number; empty: by the routes

  // For add_host():
  std::unordered_map<std::string, std::size_t> places;  ///< by host: its index in `hosts`
  std::size_t named = 0;                                ///< how many names were added

  long long total_slots() const;
};

/// Adds @p slots to the host of that name, or a new host at the end.  Throws Error{usage} when there are too many.
void add_host(Allocation& allocation, const std::string& host, int slots, const std::string& where);

}  // namespace hvd::launcher
