/// @file rank_place.h — where a rank is, read from the text of Python's faulthandler.  Pure.
#pragma once
#include <string>

namespace hvd::launcher {

/// The innermost line of the user's own code in the main thread: "loss.py:88 (forward)".  Without such code, the
/// innermost line.  Empty: the text has no main thread.
std::string user_line(const std::string& python);

/// The main thread's work, if it is known to take long: "waiting for a DataLoader worker", "importing", "compiling
/// (torch.compile)", "saving a checkpoint".  Empty: no such work.
std::string long_work(const std::string& python);

/// True if @p long_work, a result of long_work(), ends without help.  A wait for a DataLoader worker may not.
bool ends_by_itself(const std::string& long_work);

}  // namespace hvd::launcher
