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

/// "100-200"; "100-" goes on to the end, "100" is that one.  Nothing for a text that is none.
std::optional<TraceSteps> trace_steps(std::string_view text);

}  // namespace hvd::trace
