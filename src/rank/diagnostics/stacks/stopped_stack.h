/// @file stopped_stack.h — the Python frames of a rank if its main thread cannot take a signal.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

namespace hvd::rank {

/// hvdrank --stopped-stack PID: lets the main thread of a stopped process run its handler for stack_signal, and nothing
/// else.  The process stays stopped.  Needs ptrace.  Ends within 2 s.  Returns the exit code.
int run_handler_of_stopped(pid_t pid);

/// A thread of the process, other than the main thread, that takes stack_signal; nothing: there is none.
std::optional<pid_t> other_thread(pid_t pid);

/// @p python is faulthandler's text, written by another thread than the main thread.  Marks the main thread as the
/// current one; faulthandler writes it last.  Pure.
std::string with_main_as_current(const std::string& python);

/// True if the freezer of the process's cgroup holds it, as `docker pause` does.
bool is_frozen(pid_t pid);

}  // namespace hvd::rank
