/// @file show_map.h — --show-map: rank → host → GPU → NUMA node → cores → network interface.  Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launcher/mapping/job_map.h"

namespace hvd::launcher {

/// [hosts] of the map; nothing: the host's machine is not known.
using Machines = std::vector<std::optional<placement::Machine>>;

/// A table for each host, and how its GPUs reach each other.
std::string map_text(const JobMap& map, const Machines& machines);
std::string map_json(const JobMap& map, const Machines& machines);

/// "2 NUMA nodes, 48 cores, 96 threads, 16 GPUs".
std::string machine_text(const placement::Machine& machine);

}  // namespace hvd::launcher
