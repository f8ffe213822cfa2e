/// @file guard_signals.h — the signals that watchdog and guard wait for.
#pragma once
#include <csignal>

namespace hvd::rank {

/// Sent by the kernel when the parent has died (PR_SET_PDEATHSIG); no program sends it by habit.
inline int parent_died_signal() { return SIGRTMIN + 5; }

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
