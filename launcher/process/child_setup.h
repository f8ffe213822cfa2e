/// @file child_setup.h — the first steps of every forked child.
#pragma once
#include <sys/types.h>

namespace hvd::launcher {

/// Call it in the child, right after fork(); makes system calls only.  The child gets a session of its own, so that the
/// terminal's Ctrl-C goes to hvdrun alone, no blocked or ignored signal, and SIGKILL when hvdrun dies.
/// @param parent  hvdrun's process id before the fork: the child ends if that process has died already
void set_up_child(pid_t parent);

}  // namespace hvd::launcher
