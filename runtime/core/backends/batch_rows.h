/// @file batch_rows.h — the parts of a batch as rows of the timeline.
#pragma once
#include <cstdint>
#include <span>

#include "core/operation/operation.h"
#include "recorder/trace/tracer.h"

namespace hvd::core {

/// Numbers rows; records nothing while the tracer is off.
class BatchRows {
 public:
  /// @p last: the last number given away; shared by the sets of an engine, whose batches are under way together.
  BatchRows(trace::Tracer& tracer, std::uint32_t& last) : tracer_(tracer), last_(last) {}

  /// One row of operations, in its first phase.  Returns its number.
  std::uint32_t begin(std::span<Operation* const> ops, trace::Phase phase);
  void next(std::uint32_t row, trace::Phase from, trace::Phase to);
  void end(std::uint32_t row, trace::Phase phase);
  /// What follows @p phase, the row's end too, a device tells later (Running).
  void queued(std::uint32_t row, trace::Phase phase) { tracer_.phase_end(row, phase); }

 private:
  trace::Tracer& tracer_;
  std::uint32_t& last_;
};

}  // namespace hvd::core
