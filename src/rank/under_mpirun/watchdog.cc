#include "rank/under_mpirun/watchdog.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/files/leftovers.h"
#include "base/process/process.h"
#include "base/process/stopped_children.h"
#include "rank/common/awaited_signals.h"
#include "rank/common/time_limits.h"

namespace hvd::rank {
namespace {

using Clock = std::chrono::steady_clock;

/// Reaps all children that have ended.  True if @p guard was one of them; *status is then the guard's wait status.
bool reap(pid_t guard, int* status, StoppedChildren& stopped) {
  bool ended = false;
  int s = 0;
  for (pid_t pid; (pid = waitpid(-1, &s, WNOHANG | WUNTRACED | WCONTINUED)) > 0;)
    if (!stopped.take(pid, s, Clock::now()) && pid == guard) {
      ended = true;
      *status = s;
    }
  return ended;
}

/// A guard stops only by SIGSTOP from outside.  Until it goes on, no process learns that its rank has ended.
void continue_overdue(StoppedChildren& stopped) {
  for (const pid_t pid : stopped.overdue(Clock::now())) {
    kill(pid, SIGCONT);
    std::fprintf(stderr,
                 "hvdrank: process %d, the guard of a rank, was stopped by a signal for %lld s; it got SIGCONT\n", pid,
                 static_cast<long long>(StoppedChildren::limit.count() / 1000));
  }
}

int wait_for(pid_t guard) {
  const sigset_t set = awaited_signals();
  Clock::time_point kill_at = Clock::time_point::max();
  StoppedChildren stopped;
  int status = 0;
  for (;;) {
    const timespec tick{0, 100'000'000};
    siginfo_t info{};
    const bool has_limit = kill_at != Clock::time_point::max() || stopped.are_any();
    const int s = has_limit ? sigtimedwait(&set, &info, &tick) : sigwaitinfo(&set, &info);
    if (reap(guard, &status, stopped)) return status;
    if (stopped.are_any()) continue_overdue(stopped);
    if (Clock::now() > kill_at) kill(guard, SIGKILL);
    if (s == parent_died_signal()) {
      kill_at = Clock::now() + last_chance;
      kill(guard, s);
    } else if (s > 0 && s != SIGCHLD && s != SIGCONT && s != SIGPIPE && s != SIGTSTP) {
      kill(guard, s);
    }
  }
}

int run_guard(const std::function<int()>& guard, pid_t watchdog) {
  prctl(PR_SET_PDEATHSIG, parent_died_signal());
  if (getppid() != watchdog) return 1;  // the watchdog died before the line above
  setpgid(0, 0);                        // mpirun signals the watchdog's group, and the watchdog passes signals on
  become_subreaper();
  return guard();
}

}  // namespace

int watch_guard(const std::function<int()>& guard) {
  const double born_seconds = wall_seconds() - 10;  // other ranks of this host may have started earlier
  const sigset_t set = awaited_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  become_subreaper();
  if (!follow_parent()) return 1;

  const pid_t watchdog = getpid();
  const pid_t pid = fork();
  if (pid == 0) _exit(run_guard(guard, watchdog));
  if (pid < 0) {
    std::perror("hvdrank: fork");
    return 4;
  }
  const int status = wait_for(pid);
  kill_descendants(clean_up_limit);
  if (WIFSIGNALED(status)) remove_shared_memory_leftovers(born_seconds);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace hvd::rank
