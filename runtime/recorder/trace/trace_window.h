/// @file trace_window.h — which steps are in the timeline: all, those of --timeline-steps, or those between `hvdrun
/// timeline start` and `stop`.
///
/// Follows the steps: it tells the tracer of them, and starts and stops it between two of them.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "recorder/steps/step_recorder.h"
#include "recorder/trace/tracer.h"
#include "trace/trace_steps.h"
#include "wire/shared/recorder_memory.h"

namespace hvd::trace {

/// Calls come from StepRecorder, one at a time.
class TraceWindow final : public recorder::StepListener {
 public:
  /// @param steps   nothing: what began without it stays as it is
  /// @param memory  with what hvdrun has asked for; nullptr: nobody can
  /// @param start   starts @p tracer
  TraceWindow(Tracer& tracer, std::optional<TraceSteps> steps, const wire::RecorderMemory* memory,
              std::function<void()> start)
      : tracer_(tracer), steps_(steps), memory_(memory), start_(std::move(start)) {}

  /// Before the first step.  @p otherwise  whether to record where nobody has said
  void begin(bool otherwise);
  /// Whether @p number is to be recorded; nothing where nobody has said.
  std::optional<bool> wanted(std::int64_t number) const;
  void step_ended(std::int64_t number) override;
  void part(recorder::StepPart part, bool begins) override;

 private:
  Tracer& tracer_;
  const std::optional<TraceSteps> steps_;
  const wire::RecorderMemory* const memory_;
  const std::function<void()> start_;
  bool last_ = false;  ///< what wanted() said last
};

}  // namespace hvd::trace
