/// @file recorder_reader.h — the guard's view of its rank's recorder (wire/shared/recorder_memory.h).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rank/diagnostics/sealed_memory.h"
#include "wire/collectives/operation_record.h"
#include "wire/shared/recorder_memory.h"
#include "wire/shared/step_record.h"

namespace hvd::rank {

/// The rank's process could have written anything there: every value is checked.
class RecorderReader {
 public:
  RecorderReader();
  /// The descriptor that the rank inherits; -1: the memory could not be made.
  int fd() const { return memory_.fd(); }
  /// For tests.
  wire::RecorderMemory* data() { return recorder_; }
  /// The steps since the last call, at most a few hundred; the next call returns further ones.  Overwritten steps are
  /// left out.
  std::vector<wire::StepRecord> next_steps();
  /// True once, when the program has asked for the job's live report.
  bool wants_report();
  void give_report(std::string_view json) {
    if (recorder_) recorder_->report.put(json);
  }
  /// Tells the rank to record the timeline, or to stop, from its next step on.
  void record_timeline(bool on) {
    if (recorder_) recorder_->trace.store(on ? wire::trace_on : wire::trace_off, std::memory_order_relaxed);
  }
  /// libhvd's stall limit ends no operation before @p ns of CLOCK_MONOTONIC.
  void pause_limit(std::int64_t ns) {
    if (recorder_) recorder_->limit_paused_until.store(ns, std::memory_order_relaxed);
  }
  /// The last operations, at most @p most.
  wire::RankOperations last_operations(std::size_t most, std::int64_t now_ns) const;

 private:
  std::string name_at(std::uint64_t at) const;

  SealedMemory memory_;
  wire::RecorderMemory* recorder_ = nullptr;
  std::uint64_t steps_read_ = 0;
  bool asked_for_report_ = false;
};

}  // namespace hvd::rank
