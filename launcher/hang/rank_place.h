/// @file rank_place.h — where a rank is, by faulthandler's text.  Pure.
#pragma once
#include <string>

namespace hvd::launcher {

/// The main thread's innermost line of the user's own code: "loss.py:88 (forward)"; empty when there is none.
std::string user_line(const std::string& python);

/// What the main thread does there, where that is known to take long: "waiting for a DataLoader worker", "importing",
/// "compiling (torch.compile)", "saving a checkpoint"; empty: not known.
std::string long_work(const std::string& python);

/// long_work() is a wait that others may have for good reason: it will end by itself.
bool ends_by_itself(const std::string& long_work);

}  // namespace hvd::launcher
