/// @file choose_allocation.h — chooses a job's hosts among those that the user gave and those that were found, and its
/// number of ranks.
#pragma once
#include <optional>
#include <string>

#include "launcher/hosts/allocation.h"

namespace hvd::launcher {

/// Where a job may run: what the user asked for, and what was found.
struct AllocationSources {
  std::optional<int> np;
  std::optional<int> least{};            ///< an elastic job begins with so few slots, where there are fewer than np
  std::string hosts, hostfile;           ///< -H and --hostfile; explicit, at most one of them and of `explicitly`
  std::optional<Allocation> explicitly;  ///< --manifest, --host-discovery-script
  std::optional<Allocation> found;       ///< of a resource manager
  int gpus = 0;                          ///< of this machine, for a job that names neither np nor hosts
  bool by_anybody = false;               ///< --allow-writable: other users may have written the hostfile
};

/// Allocation and number of ranks: explicit beats found, found beats localhost.  -np may be left out but for nothing.
/// Throws Error{usage} with both numbers when there are too few slots, and for np < 1.
struct AllocationChoice {
  Allocation allocation;
  int np = 0;
  std::string why;  ///< why this allocation, for --dry-run: "given; Slurm job 17 is there too, but given beats found"
};
AllocationChoice choose_allocation(const AllocationSources& sources);

}  // namespace hvd::launcher
