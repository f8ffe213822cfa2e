#include "rank/guard/rank_child.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "base/process/maker.h"
#include "base/process/process.h"

namespace hvd::rank {
namespace {

constexpr std::int64_t orphans_of_the_end_ns = 1'000'000'000;  // earlier deaths do not concern the rank's end
constexpr std::int64_t most_time_to_die_ns = 2'000'000'000;    // a longer time means that the log's clock differs

/// The resources used by a zombie and by the children that it has waited for.  Does not reap the zombie.  The system
/// call is used directly, because glibc's waitid() lacks this argument.
rusage usage_of(pid_t pid) {
  siginfo_t info{};
  rusage usage{};
  if (syscall(SYS_waitid, P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT, &usage) != 0) return {};
  return usage;
}

double seconds_of(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; }

bool was_killed(const siginfo_t& info) { return info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED; }

}  // namespace

std::int64_t mono_ns() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

RankChild::RankChild() : memory_(memory_group(getpid())) {}

void RankChild::note_killed_orphan(pid_t pid, int signal) {
  const std::int64_t now = mono_ns();
  std::erase_if(orphans_, [now](const auto& one) { return now - one.second.seen_ns > orphans_of_the_end_ns; });
  orphans_[pid] = {now, {process_name(pid), signal}};
}

/// When a rank ends, this process adopts the rank's zombies.  This process may reap them before it sees the rank's end.
void RankChild::add_killed_orphans() {
  killed_.merge(killed_children(getpid()));
  for (const auto& [pid, orphan] : orphans_)
    if (ended_ns_ - orphan.seen_ns < orphans_of_the_end_ns) killed_.emplace(pid, orphan.child);
  orphans_.clear();
}

/// Reads the facts of the rank's zombie: /proc shows its cgroup and its size until it is reaped.
void RankChild::note_end() {
  ended_ns_ = mono_ns();
  const rusage usage = usage_of(pid_);
  peak_bytes_ = std::int64_t{usage.ru_maxrss} << 10;
  cpu_seconds_ = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  add_killed_orphans();
}

bool RankChild::reap() {
  if (has_ended()) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {}
    return false;
  }
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    if (info.si_pid == pid_) {
      note_end();
      if (info.si_code == CLD_KILLED && info.si_status == SIGKILL) oom_ = oom_verdict(pid_, memory_, log_, peak_bytes_);
      // A large process needs time to die.  Small processes that are killed later may end earlier.  So the rank's end
      // is the time of its kill.
      if (oom_.at_us >= 0 && ended_ns_ - oom_.at_us * 1000 < most_time_to_die_ns)
        ended_ns_ = std::min(ended_ns_, oom_.at_us * 1000);
    } else if (was_killed(info) && is_trouble(info.si_status)) {
      note_killed_orphan(info.si_pid, info.si_status);
    }
    int status = 0;
    if (waitpid(info.si_pid, &status, 0) == pid_) {
      status_ = status;
      return true;
    }
    info = {};
  }
  return false;
}

std::optional<bool> RankChild::paused() const {
  std::optional<bool> now;
  siginfo_t info{};
  while (!has_ended() && waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
         info.si_pid != 0) {
    now = info.si_code == CLD_STOPPED;
    info = {};
  }
  return now;
}

bool RankChild::is_alone() const {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

void RankChild::signal(int number) const {
  if (!has_ended()) kill(-pid_, number);
}

void RankChild::suspend() const {
  if (!has_ended()) signal(catches_signal(pid_, SIGTSTP) ? SIGTSTP : SIGSTOP);
}

void RankChild::wake() const {
  if (has_ended()) return;
  if (process_state(pid_) == 'T' || !catches_signal(pid_, SIGCONT)) signal(SIGCONT);
}

}  // namespace hvd::rank
