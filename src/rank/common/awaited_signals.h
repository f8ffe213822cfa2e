/// @file awaited_signals.h — the signals that watchdog and guard wait for.
#pragma once
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

namespace hvd::rank {

/// Sent by the kernel when the parent has died (PR_SET_PDEATHSIG); no program sends it by habit.
inline int parent_died_signal() { return SIGRTMIN + 5; }

/// Asks for that signal; false where the parent is gone already, and nobody would send it.
/// Process 1 as parent is who takes orphans in. But hvdrun itself is process 1 in a container that it was started as:
/// then its child has such a request from before its exec (launcher/process/child_setup.cc), which no orphan was left
/// without.
inline bool follow_parent() {
  const pid_t parent = ::getppid();
  int asked_before = 0;
  ::prctl(PR_GET_PDEATHSIG, &asked_before);
  ::prctl(PR_SET_PDEATHSIG, parent_died_signal());
  return ::getppid() == parent && (parent != 1 || asked_before != 0);
}

/// Everything that watchdog and guard receive synchronously; blocked in both, unblocked for the rank.
inline sigset_t awaited_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGPIPE, SIGTSTP})
    sigaddset(&set, s);
  sigaddset(&set, parent_died_signal());
  return set;
}

}  // namespace hvd::rank
