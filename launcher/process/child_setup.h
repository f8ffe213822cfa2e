/// @file child_setup.h — what a forked child does first, whatever it becomes.
#pragma once
#include <sys/types.h>

namespace hvd::launcher {

/// In the child, right after fork(); system calls only.  It gets a session of its own (the terminal's Ctrl-C is
/// hvdrun's alone), no blocked or ignored signal, and SIGKILL when hvdrun dies.
/// @param parent  hvdrun, as it was before the fork: the child ends where that has died already
void set_up_child(pid_t parent);

}  // namespace hvd::launcher
