/// @file backends.h — which backend runs an operation: one table, and one pure choice among its rows.
///
/// A backend is a folder of runtime/ops or runtime/gpu and a row in backends.cc: its name, the kinds of operations that
/// it has a form for, when it can run one, what that costs, and the stage that runs all operations of a batch that
/// chose it.  The choice is made once for an operation in a batch.  It depends on nothing but facts on which all ranks
/// of the process set agree, so all ranks choose alike without a message.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/signature.h"
#include "gpu/device.h"
#include "ops/stage.h"

namespace hvd::core {

class Batch;

/// What the ranks of a process set agree on, the same for all its operations.
struct SetFacts {
  int ranks = 1, nodes = 1;
  gpu::DeviceFacts device;
};

/// What the ranks agree on about one operation.
struct OperationFacts {
  const Signature& signature;
  std::size_t bytes = 0;    ///< of the tensor; of one row where ranks have different numbers of rows
  bool on_gpu = false;      ///< and not copied to the host yet
  bool in_slots = false;    ///< all ranks' inputs are in the node's eager slots
  bool registered = false;  ///< the tensor lies in registered memory on all ranks of the one node
};

struct Backend {
  std::string_view name;
  std::uint32_t kinds;  ///< bit_of
  bool (*possible)(const OperationFacts& operation, const SetFacts& set);
  /// Rough nanoseconds.  Only the order among backends that can run the same operation counts.
  double (*cost)(std::size_t bytes, const SetFacts& set);
  /// Makes the stage of all operations of @p batch that chose this row, or another row with the same function.  The
  /// stage is the batch's.  nullptr: they have run.
  ops::Stage* (*make)(Batch& batch);
  /// Tensors are read and written where they lie, by all ranks of the node.
  bool in_place = false;
};

/// The table, in the order in which a batch runs its rows.
std::span<const Backend> backends();
/// The first row with the same stage: parts of a batch are numbered so.
std::size_t part_of(const Backend& backend);

/// The user's wish: operations of from_bytes to to_bytes, both included, run by this backend, where it can.
struct BackendOverride {
  const Backend* backend;
  std::size_t from_bytes, to_bytes;
};
/// "shm_rings", "shm_rings:1M-64M", several with commas; sizes with K, M or G.  Throws Error{usage} naming @p variable.
std::vector<BackendOverride> parse_overrides(const std::string& text, const char* variable);

/// The first override that can run the operation, else the cheapest backend that can; nullptr: none can, which is so
/// for barriers and joins alone.  Pure.
const Backend* choose(const OperationFacts& operation, const SetFacts& set, std::span<const BackendOverride> overrides);

}  // namespace hvd::core
