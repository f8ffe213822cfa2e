/// @file awaited_signals.h — the signals that watchdog, host daemon and guard wait for.
#pragma once
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

namespace hvd::rank {

/// The signal that the kernel sends when the parent has died (PR_SET_PDEATHSIG).  No program sends it by habit.
inline int parent_died_signal() { return SIGRTMIN + 5; }

/// Asks the kernel for parent_died_signal().  False: the parent has died already, and the signal will not come.
///
/// A process with parent number 1 is usually an orphan.  But hvdrun itself may be process 1 of a container.  A child of
/// hvdrun has asked for a death signal before its exec (base/process/child.cc).  An orphan has not.
inline bool follow_parent() {
  const pid_t parent = ::getppid();
  int asked_before = 0;
  ::prctl(PR_GET_PDEATHSIG, &asked_before);
  ::prctl(PR_SET_PDEATHSIG, parent_died_signal());
  return ::getppid() == parent && (parent != 1 || asked_before != 0);
}

/// The signals that these processes receive synchronously: blocked in them, unblocked for the rank.
inline sigset_t awaited_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGPIPE, SIGTSTP})
    sigaddset(&set, s);
  sigaddset(&set, parent_died_signal());
  return set;
}

}  // namespace hvd::rank
