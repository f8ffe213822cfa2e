/// @file disagreeing_calls.h — the calls of a job that has ended because its ranks disagreed on an operation.  Pure.
#pragma once
#include <string>
#include <vector>

#include "wire/messages/death.h"

namespace hvd::launcher {

/// A call in the user's code, and the ranks that have made it.
struct DisagreeingCall {
  std::vector<int> ranks;  ///< sorted
  std::string function;    ///< "torch.distributed.barrier"; empty: not known
  wire::SourceFrame frame;
};

/// True if the exception that ended the rank is that of its last disagreement.  False: the rank has handled that one.
bool ended_by_disagreement(const wire::DeathRecord& death);

/// The different calls of the ranks in the disagreement that ended @p first, in the order of their lowest ranks.
/// Empty: @p first has ended otherwise.
std::vector<DisagreeingCall> disagreeing_calls(const wire::DeathRecord& first,
                                               const std::vector<wire::DeathRecord>& deaths);

/// "rank 0 called torch.distributed.barrier at train.py:8 (step)", one line for each call.  Of many calls, the first
/// ones and the number of the others.
std::vector<std::string> lines_of(const std::vector<DisagreeingCall>& calls);

}  // namespace hvd::launcher
