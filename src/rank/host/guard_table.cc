#include "rank/host/guard_table.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "base/error.h"
#include "base/process/process.h"
#include "base/text.h"
#include "rank/common/awaited_signals.h"
#include "rank/guard/guard.h"

namespace hvd::rank {
namespace {

/// close_range() of glibc 2.34 and later, for every glibc.
bool closes(unsigned first, unsigned last) {
  constexpr long close_range = 436;  // on all architectures
  return ::syscall(close_range, first, last, 0) == 0;
}

/// Called in a guard: closes the descriptors of the daemon except @p kept.  The objects that own them are not used in
/// the guard, and not destroyed, because the guard ends with _exit().
void keep_only(std::array<int, 3> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned from = 3;
  bool all = true;
  for (const int fd : kept) {
    if (fd < 0) continue;
    if (static_cast<unsigned>(fd) > from) all &= closes(from, static_cast<unsigned>(fd) - 1);
    from = static_cast<unsigned>(fd) + 1;
  }
  if (closes(from, ~0u) && all) return;
  std::vector<int> open;  // before Linux 5.9
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    if (const auto fd = to_integer(entry.path().filename().string())) open.push_back(static_cast<int>(*fd));
  for (const int fd : open)
    if (fd > 2 && std::find(kept.begin(), kept.end(), fd) == kept.end()) ::close(fd);
}

[[noreturn]] void become_guard(LaunchContext call, pid_t daemon) {
  keep_only({call.environment_fd, call.meeting_fd, call.channel_fd});
  ::prctl(PR_SET_PDEATHSIG, parent_died_signal());
  if (::getppid() != daemon) ::_exit(1);  // the daemon died before the line above
  ::setpgid(0, 0);
  become_subreaper();
  ::_exit(run_guard(call));
}

}  // namespace

void GuardTable::start(const LaunchContext& call, int rank, Fd meeting, Fd channel) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw Error(Code::unavailable, "socketpair", errno_text(errno));
  Fd ours(pair[0]);
  const Fd theirs(pair[1]);
  const pid_t daemon = ::getpid(), pid = ::fork();
  if (pid < 0) throw Error(Code::unavailable, "fork", errno_text(errno));
  if (pid == 0) {
    LaunchContext own = call;
    own.rank = rank;
    own.environment_fd = theirs.get();
    own.meeting_fd = meeting.get();
    own.channel_fd = channel.get();
    become_guard(std::move(own), daemon);
  }
  guards_.push_back({rank, pid, std::move(ours)});
}

std::optional<std::size_t> GuardTable::local_rank(int rank) const {
  const auto at = std::find_if(guards_.begin(), guards_.end(), [rank](const auto& g) { return g.rank == rank; });
  if (at == guards_.end()) return std::nullopt;
  return static_cast<std::size_t>(at - guards_.begin());
}

std::vector<pid_t> GuardTable::living() const {
  std::vector<pid_t> pids;
  for (const GuardProcess& g : guards_)
    if (g.pid != 0) pids.push_back(g.pid);
  return pids;
}

void GuardTable::signal(int number) const {
  for (const pid_t pid : living()) ::kill(pid, number);
}

std::optional<int> GuardTable::take_end(pid_t pid) {
  for (GuardProcess& g : guards_)
    if (g.pid == pid) {
      g.pid = 0;
      g.environment.reset();
      return g.rank;
    }
  return std::nullopt;
}

int GuardTable::rank_of(pid_t pid) const {
  const auto at = std::find_if(guards_.begin(), guards_.end(), [pid](const auto& g) { return g.pid == pid; });
  return at == guards_.end() ? -1 : at->rank;
}

bool GuardTable::any_awaits_environment() const {
  return std::any_of(guards_.begin(), guards_.end(), [](const GuardProcess& g) { return bool(g.environment); });
}

void GuardTable::give_environment(std::size_t local_rank, std::string_view variables) {
  GuardProcess& g = guards_[local_rank];
  if (g.pid != 0) write_all(g.environment.get(), variables);
  g.environment.reset();
}

}  // namespace hvd::rank
