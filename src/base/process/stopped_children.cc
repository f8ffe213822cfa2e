#include "base/process/stopped_children.h"

#include <sys/wait.h>

#include <algorithm>

namespace hvd {
namespace {

constexpr auto longest_between_calls = std::chrono::milliseconds(2000);  // after more, this process was stopped

}  // namespace

bool StoppedChildren::take(pid_t pid, int status, Time now) {
  stopped_.erase(pid);
  if (WIFCONTINUED(status)) return true;
  if (!WIFSTOPPED(status)) return false;
  if (stopped_.empty()) counted_until_ = now;
  stopped_.emplace(pid, std::chrono::nanoseconds(0));
  return true;
}

void StoppedChildren::look(Time now) {
  for (siginfo_t change{}; ::waitid(P_ALL, 0, &change, WSTOPPED | WCONTINUED | WNOHANG) == 0 && change.si_pid != 0;
       change = {})
    take(change.si_pid, change.si_code == CLD_STOPPED ? W_STOPCODE(change.si_status) : __W_CONTINUED, now);
}

std::vector<pid_t> StoppedChildren::overdue(Time now) {
  const auto passed = std::min<std::chrono::nanoseconds>(now - counted_until_, longest_between_calls);
  counted_until_ = now;
  std::vector<pid_t> found;
  for (auto& [pid, time] : stopped_)
    if ((time += passed) >= limit) found.push_back(pid);
  for (const pid_t pid : found) stopped_.erase(pid);
  return found;
}

}  // namespace hvd
