/// @file hang.h — who is missing, where, and who waits for it: words for a job that hangs.  Pure.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "launcher/place/plan.h"
#include "wire/small.h"

namespace hvd::launcher {

/// What the runtime says of one operation that only some ranks have submitted.
struct Stall {
  std::string tensor;
  double waited_seconds = 0;
  std::vector<int> missing;  ///< ranks, sorted
  int size = 0;              ///< members of the set that the operation is for
  int more = 0;              ///< missing ranks that are not in the list
};

/// The runtime's frame.  Throws Error{usage} when it is not one for a job of @p size ranks.
Stall stall_from_json(const std::string& text, int size);

/// Where a missing rank was when asked; nothing known of those that are not in the map.
using Pictures = std::map<int, wire::StackPicture>;

/// "rank 5 on host2 is in loss.py:88 (forward); 31 ranks wait for grad/layer3 since 5 s", one line for each missing
/// rank, at most four, ranks at the same place together.
/// @param ended  ranks that have ended
std::vector<std::string> hang_lines(const Stall& stall, const Plan& plan, const Pictures& pictures,
                                    const std::vector<int>& ended);

/// The main thread's innermost line of the user's own code in faulthandler's text: "loss.py:88 (forward)"; empty when
/// there is none.
std::string user_line(const std::string& python);

}  // namespace hvd::launcher
