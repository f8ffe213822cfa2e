/// @file mismatched_call.h — a call that has failed because the ranks disagree on an operation.  It is a message of the
/// rank to its guard, and a part of the death record.
#pragma once
#include <optional>
#include <string>

#include "wire/shared/source_frame.h"

namespace hvd::wire {

struct MismatchedCall {
  std::string error;     ///< the beginning of the error's text, which all ranks of the operation get
  std::string function;  ///< "torch.distributed.barrier", "hvd.allreduce"; empty: not known
  SourceFrame frame;     ///< the user's line that has called it
};

/// Reads the body of Type::mismatched_call: {"error": text, "stack": lines of a traceback, the innermost first}.
/// Nothing: the stack has no line of the user.  Throws Error{usage} when @p text is no such body.
std::optional<MismatchedCall> mismatched_call_from_stack(const std::string& text);

}  // namespace hvd::wire
