/// @file trace_steps.h — which steps a timeline shows: --timeline-steps.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace hvd::trace {

/// The first and the last step, from 1 on.
struct TraceSteps {
  std::int64_t first = 1, last = INT64_MAX;
  bool contains(std::int64_t number) const { return number >= first && number <= last; }
};

/// Parses "100-200", "100-" (step 100 and all later steps) or "100" (one step).  Nothing for any other text.
std::optional<TraceSteps> trace_steps(std::string_view text);

}  // namespace hvd::trace
