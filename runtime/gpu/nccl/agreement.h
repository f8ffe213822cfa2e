/// @file agreement.h — the facts that the ranks of a process set exchange before their first operation on GPUs.  Also
/// the decision that follows from the facts.
///
/// The ranks exchange the facts once, through the runtime's own channel.  Every rank computes the same decision.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/nccl/launch/scaling.h"

namespace hvd::nccl {

inline constexpr std::uint32_t gpu_kinds = tensor_kinds;

/// The facts of one rank.  Sent as raw bytes: all ranks run the same build.
struct DeviceInfo {
  std::int32_t version = 0;     ///< version of NCCL; 0: NCCL is not usable (`why`), or not wanted
  std::int32_t kernels = 0;     ///< the rank's GPU can run the runtime's kernels
  std::int32_t wide = 0;        ///< HVD_NCCL_WIDE: the user asks for f32 sums of f16 and bf16
  std::int32_t generation = 0;  ///< major number of the GPU's compute capability
  std::int32_t float8 = 0;      ///< HVD_NCCL_FLOAT8: the user asks for NCCL's own sums of 8-bit floats
  std::int32_t shares_gpu = 0;  ///< NCCL_MULTI_RANK_GPU_ENABLE=1
  std::int32_t splits = 0;      ///< the rank's NCCL has ncclCommSplit
  std::int32_t encrypts = 0;    ///< HVD_ENCRYPT_TENSORS: NCCL must not carry tensors between hosts
  std::int32_t inherited = 0;   ///< the rank has a communicator of the set that was split from the world's
  std::int32_t slots = 1;       ///< HOROVOD_NUM_NCCL_STREAMS
  /// HOROVOD_HIERARCHICAL_ALLREDUCE or HOROVOD_TORUS_ALLREDUCE; HOROVOD_HIERARCHICAL_ALLGATHER.
  std::int32_t sums_by_nodes = 0, gathers_by_nodes = 0;
  std::int32_t blocks = 0;         ///< multiprocessors that the set may use on the rank's GPU (multiprocessor_share.h)
  std::uint32_t through_host = 0;  ///< kinds (bit_of) that the user sends through host memory
  std::int64_t window_bytes = 0;   ///< memory of each slot that can become a window; 0: none (HVD_NCCL_WINDOWS)
  std::uint64_t host = 0;
  char uuid[48] = {};
  char why[128] = {};  ///< the reason if the rank cannot use NCCL
  UniqueId id{};       ///< valid from the set's first rank only
};

/// Corrects a received DeviceInfo.  Texts end with a zero byte, slots is at least 1, and blocks and
/// window_bytes are at least 0.  through_host has valid kinds only.
DeviceInfo sound(DeviceInfo received);

struct GpuDecision {
  bool nccl = false;
  /// Bits (bit_of) of the kinds that any rank sends through host memory.  With `nccl`, NCCL carries all other kinds.
  std::uint32_t through_host = 0;
  Capabilities capabilities;
  std::string reason;     ///< why NCCL is not used; empty if the user chose so
  bool splits = false;    ///< all ranks have ncclCommSplit
  bool inherits = false;  ///< all ranks have a communicator that was split from the world's
  int slots = 1;
  bool sums_by_nodes = false, gathers_by_nodes = false;
  int blocks = 0;                  ///< multiprocessors for each slot, on each GPU
  std::int64_t window_bytes = 0;   ///< bytes of each slot's window; 0: no windows
  std::vector<std::string> notes;  ///< one line for each wish of the user that is not met
};

/// Computes the decision from the facts of all ranks.  Pure function.
/// @param devices      [size of the set] corrected by sound()
/// @param world_ranks  [size of the set] the ranks' numbers in the world, for messages
/// @param nodes        [nodes of the set] the number of the set's ranks on each node
GpuDecision decide(std::span<const DeviceInfo> devices, std::span<const int> world_ranks,
                   std::span<const std::size_t> nodes);

}  // namespace hvd::nccl
