/// @file agreement.h — what the ranks of a process set tell each other before their first operation on GPUs, and what
/// they make of it.
///
/// Exchanged once through the runtime's own channel; everybody decides alike.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/nccl/launch/scaling.h"

namespace hvd::nccl {

inline constexpr std::uint32_t gpu_kinds = tensor_kinds;

/// Sent as it is: the ranks run the same build.
struct DeviceInfo {
  std::int32_t version = 0;     ///< of NCCL, 0: none
  std::int32_t kernels = 0;     ///< its GPU can run the kernels of the runtime
  std::int32_t wide = 0;        ///< HVD_NCCL_WIDE: it asks for f32 sums of f16 and bf16
  std::int32_t generation = 0;  ///< of its GPU's compute capability
  std::int32_t float8 = 0;      ///< its environment asks for NCCL's own sums of 8-bit floats
  std::int32_t shares_gpu = 0;  ///< NCCL_MULTI_RANK_GPU_ENABLE=1
  std::int32_t splits = 0;      ///< its NCCL has ncclCommSplit
  std::int32_t encrypts = 0;    ///< HVD_ENCRYPT_TENSORS: NCCL must not carry tensors between hosts
  std::int32_t inherited = 0;   ///< a communicator of the set has been split from the world's
  std::int32_t slots = 1;       ///< its environment asks for NCCL streams, and for the next two
  std::int32_t sums_by_nodes = 0, gathers_by_nodes = 0;
  std::int32_t blocks = 0;         ///< its share of its device (multiprocessor_share.h)
  std::uint32_t through_host = 0;  ///< kinds that its environment wants to go through host memory
  std::uint64_t host = 0;
  char uuid[48] = {};
  char why[128] = {};  ///< no NCCL: the reason
  UniqueId id{};       ///< of the set's first rank
};

/// Puts what a rank sent in bounds: texts end with a zero byte, slots is at least 1.
DeviceInfo sound(DeviceInfo received);

struct GpuDecision {
  bool nccl = false;
  std::uint32_t through_host = 0;  ///< kinds that a rank wants to go through host memory; the others, if nccl, do not
  Capabilities capabilities;
  std::string reason;     ///< why not NCCL; empty when the user wants it so
  bool splits = false;    ///< all have ncclCommSplit
  bool inherits = false;  ///< all ranks use a communicator that was split from the world's
  int slots = 1;
  bool sums_by_nodes = false, gathers_by_nodes = false;
  int blocks = 0;                  ///< of a device, for each slot
  std::vector<std::string> notes;  ///< what the user asked for and does not get: a line each
};

/// @param nodes        how many ranks of the set each of its nodes has
/// @param devices        [size of the set], sound
/// @param world_ranks  [size of the set]: what the user calls them
GpuDecision decide(std::span<const DeviceInfo> devices, std::span<const int> world_ranks,
                   std::span<const std::size_t> nodes);

}  // namespace hvd::nccl
