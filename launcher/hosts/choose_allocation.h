/// @file choose_allocation.h — chooses a job's hosts, among given and found ones, and its number of ranks.
#pragma once
#include <optional>
#include <string>

#include "launcher/hosts/allocation.h"

namespace hvd::launcher {

/// The hosts and slots that the user named, and those that schedulers offer.
struct AllocationSources {
  std::optional<int> np;
  std::optional<int> least{};   ///< an elastic job begins with this number of slots, if there are fewer than np
  std::string hosts, hostfile;  ///< -H and --hostfile; at most one of them and of `explicitly` is set
  std::optional<Allocation> explicitly;  ///< --manifest, --host-discovery-script
  std::optional<Allocation> found;       ///< by a resource manager
  int gpus = 0;                          ///< of this machine; counts if the job names neither np nor hosts
  bool by_anybody = false;               ///< --allow-writable: other users may have written the hostfile
};

/// Explicit hosts beat found hosts, and found hosts beat localhost.  -np is optional if the hosts have slots.
/// Throws Error{usage} with both numbers if there are too few slots, and for np < 1.
struct AllocationChoice {
  Allocation allocation;
  int np = 0;
  std::string why;  ///< why this allocation, for --dry-run: "given; Slurm job 17 is there too, but given beats found"
};
AllocationChoice choose_allocation(const AllocationSources& sources);

}  // namespace hvd::launcher
