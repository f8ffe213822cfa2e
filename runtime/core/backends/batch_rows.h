/// @file batch_rows.h — the parts of a batch as rows of the timeline.
#pragma once
#include <cstdint>
#include <span>

#include "core/operation/operation.h"
#include "recorder/trace/tracer.h"

namespace hvd::core {

/// Numbers rows also while the tracer is off, and then records none.
class BatchRows {
 public:
  /// @p last: the last row's number.  All sets of an engine share it, since their batches overlap.
  BatchRows(trace::Tracer& tracer, std::uint32_t& last) : tracer_(tracer), last_(last) {}

  /// Begins a row of @p ops in its first phase.  Returns the row's number.
  std::uint32_t begin(std::span<Operation* const> ops, trace::Phase phase);
  void next(std::uint32_t row, trace::Phase from, trace::Phase to);
  void end(std::uint32_t row, trace::Phase phase);
  /// Ends @p phase.  A device records the later phases and the row's end (Running).
  void queued(std::uint32_t row, trace::Phase phase) { tracer_.phase_end(row, phase); }

 private:
  trace::Tracer& tracer_;
  std::uint32_t& last_;
};

}  // namespace hvd::core
