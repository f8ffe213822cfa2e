#include "gpu/nccl/agreement.h"

#include <algorithm>
#include <cstring>

#include "gpu/nccl/communicator/library.h"

namespace hvd::nccl {
namespace {

std::string rank(std::span<const int> world_ranks, std::size_t r) { return "rank " + std::to_string(world_ranks[r]); }

/// Finds two ranks on one GPU where NCCL does not allow that.  Returns the reason, or an empty text.
std::string shared_gpu(std::span<const DeviceInfo> devices, std::span<const int> world_ranks) {
  for (std::size_t a = 0; a < devices.size(); ++a)
    for (std::size_t b = a + 1; b < devices.size(); ++b) {
      if (devices[a].host != devices[b].host || std::strcmp(devices[a].uuid, devices[b].uuid) != 0) continue;
      if (devices[a].version >= shared_gpu_version && devices[a].shares_gpu && devices[b].shares_gpu) continue;
      return rank(world_ranks, a) + " and " + rank(world_ranks, b) + " use one GPU, " + devices[a].uuid +
             " (NCCL 2.30 and later can, with NCCL_MULTI_RANK_GPU_ENABLE=1)";
    }
  return {};
}

/// Decides whether to use slots, and operations by nodes.  All ranks must ask for them, and NCCL must support them.
void decide_forms(GpuDecision& d, std::span<const DeviceInfo> devices, std::span<const std::size_t> nodes) {
  d.splits = d.inherits = true;
  d.slots = devices.front().slots;
  d.sums_by_nodes = d.gathers_by_nodes = true;
  for (const DeviceInfo& c : devices) {
    d.splits &= c.splits != 0;
    d.inherits &= c.inherited != 0;
    d.slots = std::min(d.slots, c.slots);
    d.sums_by_nodes &= c.sums_by_nodes != 0;
    d.gathers_by_nodes &= c.gathers_by_nodes != 0;
  }
  const bool several = nodes.size() > 1 && *std::max_element(nodes.begin(), nodes.end()) > 1;
  d.sums_by_nodes &= several, d.gathers_by_nodes &= several;
  const bool by_nodes = d.sums_by_nodes || d.gathers_by_nodes;
  std::string why;
  if (!d.splits) why = "NCCL has no ncclCommSplit";
  if (!why.empty() && d.slots > 1) d.notes.push_back("NCCL uses one stream: " + why), d.slots = 1;
  for (const std::size_t n : nodes)
    if (why.empty() && n != nodes[0])
      why = "nodes have " + std::to_string(nodes[0]) + " and " + std::to_string(n) + " ranks";
  if (!why.empty() && by_nodes) {
    d.notes.push_back("NCCL's operations are not made node by node: " + why);
    d.sums_by_nodes = d.gathers_by_nodes = false;
  }
}

/// Divides the smallest share among the ranks by the number of slots.
void decide_multiprocessors(GpuDecision& d, std::span<const DeviceInfo> devices, std::span<const int> world_ranks) {
  const auto least = std::min_element(devices.begin(), devices.end(),
                                      [](const DeviceInfo& a, const DeviceInfo& b) { return a.blocks < b.blocks; });
  const auto at = static_cast<std::size_t>(least - devices.begin());
  if (least->blocks == 0) {
    d.reason = "the GPU of " + rank(world_ranks, at) + " has no room for one more communicator of NCCL";
    return;
  }
  if (d.slots > least->blocks) {
    d.notes.push_back("NCCL uses " + std::to_string(least->blocks) + " of " + std::to_string(d.slots) +
                      " streams: the GPU of " + rank(world_ranks, at) + " has no room for more");
    d.slots = least->blocks;
  }
  d.blocks = least->blocks / d.slots;
}

void decide_capabilities(GpuDecision& d, std::span<const DeviceInfo> devices) {
  d.capabilities = {true, true, true};
  bool float8 = true;  // NCCL can sum 8-bit floats on all ranks
  for (const DeviceInfo& c : devices) {
    d.capabilities.kernels &= c.kernels != 0;
    d.capabilities.wide &= c.wide != 0;
    d.capabilities.float8 &= c.float8 != 0;
    float8 &= c.version >= float8_version && c.generation >= float8_generation;
  }
  d.capabilities.wide &= d.capabilities.kernels;
  if (d.capabilities.float8 && !float8)
    d.notes.push_back("NCCL adds up no 8-bit floats: that takes 2.24 or later, and compute capability 9.0 on all GPUs");
  d.capabilities.float8 = float8 && (d.capabilities.float8 || !d.capabilities.kernels);
}

/// All ranks must have memory for windows.  All windows have the size of the smallest.
void decide_windows(GpuDecision& d, std::span<const DeviceInfo> devices, std::span<const int> world_ranks) {
  const auto smaller = [](const DeviceInfo& a, const DeviceInfo& b) { return a.window_bytes < b.window_bytes; };
  const auto [least, most] = std::minmax_element(devices.begin(), devices.end(), smaller);
  d.window_bytes = least->window_bytes;
  if (least->window_bytes > 0 || most->window_bytes == 0) return;
  d.notes.push_back("NCCL gets no window for the fusion buffer: " +
                    rank(world_ranks, static_cast<std::size_t>(least - devices.begin())) +
                    " has no memory for a window, or no HVD_NCCL_WINDOWS=1");
}

/// Sets d.nccl, or the reason why NCCL is not used.
void decide_nccl(GpuDecision& d, std::span<const DeviceInfo> devices, std::span<const int> world_ranks,
                 std::span<const std::size_t> nodes) {
  for (std::size_t r = 0; r < devices.size(); ++r) {
    if (devices[r].version == 0) {
      d.reason = rank(world_ranks, r) + ": " + devices[r].why;
      return;
    }
    if (devices[r].version != devices[0].version) {
      d.reason = "NCCL is " + version_text(devices[0].version) + " on " + rank(world_ranks, 0) + " and " +
                 version_text(devices[r].version) + " on " + rank(world_ranks, r);
      return;
    }
  }
  d.reason = shared_gpu(devices, world_ranks);
  decide_forms(d, devices, nodes);
  if (d.reason.empty()) decide_multiprocessors(d, devices, world_ranks);
  d.nccl = d.reason.empty();
  decide_windows(d, devices, world_ranks);
}

}  // namespace

DeviceInfo sound(DeviceInfo c) {
  c.uuid[sizeof c.uuid - 1] = c.why[sizeof c.why - 1] = '\0';
  c.slots = std::max(c.slots, 1);
  c.blocks = std::max(c.blocks, 0);
  c.window_bytes = std::max<std::int64_t>(c.window_bytes, 0);
  c.through_host &= gpu_kinds;
  return c;
}

GpuDecision decide(std::span<const DeviceInfo> devices, std::span<const int> world_ranks,
                   std::span<const std::size_t> nodes) {
  GpuDecision d;
  for (const DeviceInfo& c : devices) {
    d.through_host |= c.through_host;
    if (c.encrypts == 0 || nodes.size() < 2) continue;
    d.through_host = gpu_kinds;
    d.reason = "NCCL would carry them between hosts in clear (--encrypt-tensors)";
  }
  decide_capabilities(d, devices);
  if (d.through_host != gpu_kinds) decide_nccl(d, devices, world_ranks, nodes);
  return d;
}

}  // namespace hvd::nccl
