/// @file backend.h — a way to run operations: one struct, defined in a file of this folder.
///
/// A row of `backends()` (backends.cc) lists each backend once.  `possible` and `cost` depend only on facts on which
/// all ranks of the process set agree.  So all ranks choose the same backend without a message.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/signature.h"
#include "gpu/device.h"
#include "ops/stage.h"
#include "recorder/trace/tracer.h"

namespace hvd::core {

struct BatchPart;
struct Workspace;

/// Facts on which all ranks of a process set agree, and which hold for all its operations.
struct SetFacts {
  int ranks = 1, nodes = 1;
  gpu::DeviceFacts device;
};

/// Facts on which the ranks agree, about one operation.
struct OperationFacts {
  const Signature& signature;
  std::size_t bytes = 0;    ///< of the tensor; of one row if ranks have different numbers of rows
  bool on_gpu = false;      ///< the tensor has not been copied to the host yet
  bool in_slots = false;    ///< all ranks' inputs are in the node's eager slots
  bool registered = false;  ///< the tensor lies in registered memory on all ranks of the one node
};

/// The place where a backend's operations run.
enum class BackendPlace {
  host,
  gpu,     ///< a GPU finishes the operations later, and reports their end
  copied,  ///< the backend only copies tensors from a GPU to the host; the operations then choose again
};

/// The origin of a result in host memory that all ranks of a node have.
enum class ResultOrigin : std::uint8_t {
  unknown,
  own_sum,    ///< each rank adds up the inputs in the slots
  slot,       ///< each rank copies the result from one slot
  ring,       ///< each rank copies the result from the result ring, except the part that the rank has added up itself
  neighbour,  ///< each piece is added up by one rank, which writes it to the memory of all
  moved,      ///< the result is an input, copied through rings
};

/// Backends with the same `make` share a stage: one part of the batch runs all their operations.
struct Backend {
  std::string_view name;
  std::uint32_t kinds;  ///< bit_of() of each kind that the backend can run
  bool (*possible)(const OperationFacts& operation, const SetFacts& set);
  /// Rough nanoseconds.  Only the order among backends that can run the same operation counts.
  double (*cost)(std::size_t bytes, const SetFacts& set);
  /// Begins all operations of @p part.  The result belongs to @p work.  nullptr: the operations have run.
  ops::Stage* (*make)(Workspace& work, BatchPart& part);
  /// Called after the stage: hands results to the operations. nullptr: the stage has written all results.
  void (*take)(Workspace& work, BatchPart& part) = nullptr;
  /// Called after each step with progress: records phases in the timeline. nullptr: `make` has recorded the only phase.
  void (*trace)(Workspace& work, BatchPart& part) = nullptr;
  BackendPlace place = BackendPlace::host;
  bool in_place = false;                        ///< all ranks of the node read and write the tensors where these lie
  trace::Phase first = trace::Phase::queue;     ///< of the part's row in the timeline
  ResultOrigin origin = ResultOrigin::unknown;  ///< `slot`: see SharedResults::place_of() (core/batch)
};

/// A cost: a fixed time, and a time for each KiB.
template <int fixed_ns, int ns_per_kib>
double line(std::size_t bytes, const SetFacts&) {
  return fixed_ns + static_cast<double>(bytes) * ns_per_kib / 1024;
}

}  // namespace hvd::core
