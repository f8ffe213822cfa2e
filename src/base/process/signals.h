/// @file signals.h — sets the signal dispositions and the signal mask at the start of a program.
#pragma once

namespace hvd {

/// Restores the signals that the parent ignored or blocked.  Call this first in main(), while there is one thread.
///
/// exec passes ignored and blocked signals to the new program.  Inherited settings can break a program: waitpid(2)
/// fails if the parent ignored SIGCHLD.  An ignored SIGHUP stays ignored, because nohup(1) works this way.  SIGXFSZ
/// becomes ignored: a write beyond `ulimit -f` then fails with EFBIG, instead of killing the program.
void take_over_signals();

/// Sets every signal to its default and unblocks all signals, for a child before exec.  Makes only system calls, so a
/// child of vfork() may call it.
void restore_signals();

/// "KILL" for SIGKILL; null for a number without a name.  (sigabbrev_np() requires glibc 2.32.)
const char* signal_name(int number);

}  // namespace hvd
