/// @file attach.h — hvdrun attach: a console of Python's debugger in a rank, over the job's own connections.
///
/// The job (supervise/serve/console_relay.h) asks the rank's guard, which calls the rank (rank/guard/debug_console.h).
/// Bytes then go both ways.  Between hosts they are encrypted, as all messages of hvdrun and the guards are.
#pragma once
#include <string>
#include <string_view>

namespace hvd::launcher {

/// The beginnings of the first line that the job sends.  The debugger's bytes follow the line.
namespace console_line {
inline constexpr std::string_view opened = "opened ";  ///< then "PID HOST"
inline constexpr std::string_view refused =
    "refused ";                            ///< then one character, a wire::ConsoleRefusal, and the system's error text
inline constexpr char no_such_rank = '-';  ///< instead of a wire::ConsoleRefusal
}  // namespace console_line

/// Connects the terminal to the rank's debugger.  Returns when the console has ended.  The rank then goes on, also if
/// this process is killed.
/// @param folder  the job's folder
/// Throws Error{usage, unavailable}.  Throws Error{timeout} if the rank's main thread does not run Python code in time;
/// the rank's stack is then on stderr.
int attach_to_rank(const std::string& folder, long long rank);

}  // namespace hvd::launcher
