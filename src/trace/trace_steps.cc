#include "trace/trace_steps.h"

#include "base/text.h"

namespace hvd::trace {

std::optional<TraceSteps> trace_steps(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = to_integer(text.substr(0, dash));
  if (!first || *first < 1) return std::nullopt;
  if (dash == text.npos) return TraceSteps{*first, *first};
  if (dash + 1 == text.size()) return TraceSteps{*first, INT64_MAX};
  const auto last = to_integer(text.substr(dash + 1));
  if (!last || *last < *first) return std::nullopt;
  return TraceSteps{*first, *last};
}

}  // namespace hvd::trace
