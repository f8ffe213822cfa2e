/// @file shared_results.h — the bytes from which a node's ranks got a result, read again once the operation has ended.
///
/// If a rank's result differs, these bytes tell whether its copy differs, or the bytes themselves.
///
/// The caller holds the engine's drive lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/backends/workspace.h"
#include "core/operation/operation.h"

namespace hvd::core {

/// How the ranks got a result, and where its bytes lie.
struct ResultPlace {
  ResultOrigin origin = ResultOrigin::unknown;
  bool one_sum = false;       ///< one node computed the bytes for all nodes; false: each node may have added the parts
  std::uint8_t parity = 0;    ///< slots: of the round
  int root = 0;               ///< slots: the local rank that has the slot
  std::uint32_t slot = 0;     ///< slots: the offset
  const void* out = nullptr;  ///< rings: this rank's result
  ops::ReduceFn add = nullptr;  ///< own_sum, like the next two
  ops::Scale scale;
  std::size_t element_bytes = 1;
};

class SharedResults {
 public:
  /// @p work must outlive this object.
  explicit SharedResults(const Workspace& work) : work_(work) {}

  /// @p op has ended well, and has its entry.  @p backend: that has run it; nullptr: it was in the slots.
  ResultPlace place_of(const Operation& op, const Backend* backend) const;
  /// The hash of bytes [begin, end) of the result, as the memory of the node gives them now.  To be called before the
  /// next batch begins.  nullopt: the bytes are gone.  The memory may be in use again, so only a hash that a rank has
  /// too means anything.
  std::optional<std::uint64_t> hash(const ResultPlace& place, std::size_t begin, std::size_t end) const;
  /// The hashes of the operations that the GPUs have run last.  nullptr: GPUs hash nothing.
  const std::shared_ptr<const gpu::SliceHashes>& device_hashes() const { return work_.hashes; }

 private:
  const Workspace& work_;
};

}  // namespace hvd::core
