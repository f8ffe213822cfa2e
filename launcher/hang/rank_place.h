/// @file rank_place.h — where a rank is, read from the text of Python's faulthandler.  Pure.
#pragma once
#include <optional>
#include <string>

#include "wire/messages/source_frame.h"

namespace hvd::launcher {

/// The innermost line of the user's own code in the main thread.  Without such code, the innermost line.  Nothing: the
/// text has no main thread.
std::optional<wire::SourceFrame> user_frame(const std::string& python);

/// user_frame() in words: "loss.py:88 (forward)".  Empty: the text has no main thread.
std::string user_line(const std::string& python);

/// The main thread's work, if it is known to take long: "waiting for a DataLoader worker", "importing", "compiling
/// (torch.compile)", "saving a checkpoint".  Empty: no such work.
std::string long_work(const std::string& python);

/// True if @p long_work, a result of long_work(), ends without help.  A wait for a DataLoader worker may not.
bool ends_by_itself(const std::string& long_work);

}  // namespace hvd::launcher
