/// @file system_call.h — the system call that a thread is in.
#pragma once
#include <sys/types.h>

#include <string>

namespace hvd::rank {

/// Describes the thread's present system call, from /proc/PID/task/TID/syscall: "reads from /data/part-3", "runs".
/// Empty: unknown.
std::string system_call_of(pid_t pid, pid_t thread);

}  // namespace hvd::rank
