/// @file signals.h — the signal dispositions and the mask that a program starts with.
#pragma once

namespace hvd {

/// Restores signals that the parent left ignored or blocked: exec passes on both states.  A parent that ignores SIGCHLD
/// would make waitpid(2) fail in this program.  An ignored SIGHUP stays ignored: nohup(1) means it so. SIGXFSZ is
/// ignored, so that a write beyond `ulimit -f` fails with EFBIG instead of ending the program silently. Called first in
/// main(), while the program has one thread.
void take_over_signals();

/// Sets every signal to its default and unblocks all, for the program that a child executes.  Only system calls: it may
/// run in a child of vfork().
void restore_signals();

}  // namespace hvd
