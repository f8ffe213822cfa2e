/// @file trace_window.h — the steps that are in the timeline.  These are all steps, the steps of --timeline-steps, or
/// the steps between `hvdrun timeline start` and `hvdrun timeline stop`.
///
/// TraceWindow reports each step to the tracer, and starts and stops the tracer between two steps.
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
  /// @param steps   the steps to record; nullopt: begin() and hvdrun alone decide
  /// @param memory  holds the last order of `hvdrun timeline`; nullptr: there is no hvdrun.  Must outlive this object
  /// @param start   starts @p tracer; may throw
  TraceWindow(Tracer& tracer, std::optional<TraceSteps> steps, const wire::RecorderMemory* memory,
              std::function<void()> start)
      : tracer_(tracer), steps_(steps), memory_(memory), start_(std::move(start)) {}

  /// Call it before the first step.  Starts the tracer if the first step is to be recorded.
  /// @param otherwise  whether to record if wanted() returns nullopt
  void begin(bool otherwise);
  /// True if the tracer records step @p number.  nullopt: undecided, since no option and no command of
  /// hvdrun applies.
  std::optional<bool> wanted(std::int64_t number) const;
  void step_ended(std::int64_t number) override;
  void part(recorder::StepPart part, bool begins) override;

 private:
  Tracer& tracer_;
  const std::optional<TraceSteps> steps_;
  const wire::RecorderMemory* const memory_;
  const std::function<void()> start_;
  bool last_ = false;  ///< the current step is to be recorded
};

}  // namespace hvd::trace
