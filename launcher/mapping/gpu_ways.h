/// @file gpu_ways.h — how the GPUs of a host reach each other, as text and JSON.  Pure.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "placement/machine.h"

namespace hvd::launcher {

/// "NVIDIA driver 580.65.06, NCCL 2.30.7"; empty when neither is known.
std::string versions_text(const placement::Machine& machine);

/// "28 pairs by NVLink, 18 links; 2 pairs by one PCIe switch", the most frequent first.  @param names  each pair's way
std::string count_ways(const std::vector<std::string>& names);

/// Lines below a host's table.  First the versions.  Then the way that all pairs share, or a matrix of the ways and the
/// meaning of their names.  Empty: the host has no GPUs, or nothing is known of them.
std::string ways_text(const placement::Machine& machine);

/// Adds "driver" and "nccl", where known, and "gpus" with their "ways" to each other: [{"to": 1, "way": "NV6"}, …].
void add_gpus(nlohmann::ordered_json& host, const placement::Machine& machine);

}  // namespace hvd::launcher
