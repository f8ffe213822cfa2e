/// @file allocation.h — which hosts take part and how many ranks each may take.
///
/// Readers of all forms end in one Allocation.  parse_* are pure; only resolve.h touches the network.
#pragma once
#include <optional>
#include <string>
#include <string_view>
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
  /// Words that run a shell on a host, "{host}" in one of them; empty: ssh.
  std::vector<std::string> launch_agent;

  // add_host()'s own:
  std::unordered_map<std::string, std::size_t> places;  ///< host → its place in `hosts`
  std::size_t named = 0;                                ///< how often a host was added, by whatever name

  long long total_slots() const;
};

/// "h1:2,h2,node[01-04]:4,[fe80::1]:2".  Throws Error{usage, "-H:column"}.
Allocation parse_hosts(std::string_view text);

/// A hostfile's text.  A host alone counts for one slot; a host on several lines counts for their sum.
/// @param name  for messages: name:line:column
Allocation parse_hostfile(std::string_view text, const std::string& name);

/// What host discovery prints: `host` or `host:slots` a line.
/// @param slots  of a host without its own number
Allocation parse_discovered(std::string_view text, int slots, const std::string& name);

/// Adds @p slots to the host of that name, or the host at the end.  Throws Error{usage} where there are too many.
void add_host(Allocation& allocation, const std::string& host, int slots, const std::string& where);

/// Where a job may run, as asked for and as found.
struct Sources {
  std::optional<int> np;
  std::string hosts, hostfile;           ///< -H and --hostfile; explicit, at most one of them and of `explicitly`
  std::optional<Allocation> explicitly;  ///< --manifest, --host-discovery-script
  std::optional<Allocation> found;       ///< of a resource manager
  int gpus = 0;                          ///< of this machine, for a job that names neither np nor hosts
  bool by_anybody = false;               ///< --allow-writable: others may have written the hostfile
};

/// Allocation and number of ranks: explicit beats found, found beats localhost.  -np may be left out but for nothing.
/// Throws Error{usage} with both numbers when there are too few slots, and for np < 1.
struct Wanted {
  Allocation allocation;
  int np = 0;
  std::string why;  ///< why this allocation, for --dry-run: "given; Slurm job 17 is there too, but given beats found"
};
Wanted decide_allocation(const Sources& sources);

}  // namespace hvd::launcher
