/// @file killed_children.h — processes of a rank that a signal has killed, such as workers of a data loader.
#pragma once
#include <sys/types.h>

#include <map>
#include <string>

namespace hvd::rank {

/// A zombie that a signal has killed: its parent has not waited for it yet.
struct KilledChild {
  std::string name;  ///< as in ps(1)
  int signal = 0;
};

/// True if a death by @p signal shows a fault: SIGKILL, or a crash.  Programs do not end their own workers by these
/// signals.
bool is_trouble(int signal);

/// The children of @p parent that a signal of trouble has killed, by process number.  Needs one walk over /proc.
std::map<pid_t, KilledChild> killed_children(pid_t parent);

/// "its process 4711 (pt_data_worker) was killed by signal 9 (SIGKILL)"; of many the first.  Empty: @p killed is empty.
std::string killed_text(const std::map<pid_t, KilledChild>& killed);

}  // namespace hvd::rank
