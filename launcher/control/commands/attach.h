/// @file attach.h — hvdrun attach: a console of Python's debugger in a rank, over the job's own connections.
///
/// The job (supervise/serve/console_relay.h) asks the rank's guard, which calls the rank (rank/guard/debug_console.h).
/// Bytes then go both ways, between hosts encrypted as all that hvdrun and the guards say to each other.
#pragma once
#include <string>
#include <string_view>

namespace hvd::launcher {

/// The first line of what the job says, before the debugger's bytes.
namespace console_line {
inline constexpr std::string_view opened = "opened ";  ///< then "PID HOST"
inline constexpr std::string_view refused =
    "refused ";                            ///< then a letter of wire::ConsoleRefusal and the system's words
inline constexpr char no_such_rank = '-';  ///< instead of that letter
}  // namespace console_line

/// Returns when the console has ended.  The rank goes on then, also when this process is killed.
/// @param folder  the job's.
/// Throws Error{usage, unavailable}; Error{timeout} with the rank's stack on stderr when its main thread does not come.
int attach_to_rank(const std::string& folder, long long rank);

}  // namespace hvd::launcher
