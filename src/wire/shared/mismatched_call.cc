#include "mismatched_call.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "wire/json.h"

namespace hvd::wire {
namespace {

/// The beginnings of the names of hvd's public functions that are collective.
constexpr std::array<std::string_view, 10> our_functions{"allgather", "allreduce",  "alltoall", "barrier",
                                                         "broadcast", "grouped_",   "join",     "reducescatter",
                                                         "sparse_",   "synchronize"};

/// The public name of a library's function with this frame; empty: the function is internal.
std::string public_name(const SourceFrame& frame) {
  if (frame.file.ends_with("torch/distributed/distributed_c10d.py"))
    return frame.function.starts_with("_") || frame.function == "wrapper" ? "" : "torch.distributed." + frame.function;
  const bool is_ours = frame.file == "<hvdrun>" || frame.file.find("/hvd/") != std::string::npos;
  const bool is_internal =
      frame.file.find("/_c10d/") != std::string::npos || frame.file.find("/_optimizer/") != std::string::npos;
  const bool is_collective =
      std::ranges::any_of(our_functions, [&](std::string_view begin) { return frame.function.starts_with(begin); });
  return is_ours && !is_internal && is_collective ? "hvd." + frame.function : "";
}

}  // namespace

std::optional<MismatchedCall> mismatched_call_from_stack(const std::string& text) {
  const Json json = parse_object(text, "mismatched_call");
  const Fields f(json, "mismatched_call");
  MismatchedCall found{f.bytes("error"), {}, {}};
  if (found.error.empty()) f.bad("error", "is empty");
  for (const std::string& line : f.list("stack")) {
    const std::optional<SourceFrame> frame = frame_of_line(line);
    if (!frame) continue;
    if (!is_library(frame->file)) {
      found.frame = *frame;
      return found;
    }
    if (std::string name = public_name(*frame); !name.empty()) found.function = std::move(name);
  }
  return {};
}

}  // namespace hvd::wire
