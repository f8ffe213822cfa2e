#include "recorder/trace/trace_window.h"

#include <exception>
#include <string>

#include "common/log.h"

namespace hvd::trace {

std::optional<bool> TraceWindow::wanted(std::int64_t number) const {
  if (memory_) switch (memory_->trace.load(std::memory_order_relaxed)) {
      case wire::trace_on:
        return true;
      case wire::trace_off:
        return false;
      default:
        break;
    }
  if (!steps_) return std::nullopt;
  return steps_->contains(number);
}

void TraceWindow::begin(bool otherwise) {
  last_ = wanted(1).value_or(otherwise);
  if (last_) start_();
}

/// Starts or stops the tracer only when wanted() changes.  So a program may start and stop the timeline in between.
void TraceWindow::step_ended(std::int64_t number) {
  const bool next = wanted(number + 1).value_or(last_);
  tracer_.step(next || !last_ ? number : -number);
  if (next == last_) return;
  last_ = next;
  if (!last_) return tracer_.stop_soon();
  try {
    start_();
  } catch (const std::exception& e) {  // must not reach the program, which only ends a step
    log_warning(std::string("the timeline is not recorded: ") + e.what());
  }
  tracer_.step(number);
}

void TraceWindow::part(recorder::StepPart part, bool begins) {
  switch (part) {
    case recorder::StepPart::input:
      return tracer_.part(TracedPart::input, begins);
    case recorder::StepPart::collect:
      return tracer_.part(TracedPart::collect, begins);
    case recorder::StepPart::save:
      return tracer_.part(TracedPart::save, begins);
    default:
      return;  // the timeline shows operations already, and does not show the program's own work
  }
}

}  // namespace hvd::trace
