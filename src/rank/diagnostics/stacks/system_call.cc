#include "rank/diagnostics/stacks/system_call.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/format.h"

namespace hvd::rank {

namespace {

struct SystemCall {
  long number;
  const char* words;
  bool of_file;  ///< the call's first argument is a descriptor
};

constexpr SystemCall calls[] = {
    {SYS_futex, "waits for another thread (futex)", false},
    {SYS_read, "reads from ", true},
    {SYS_write, "writes to ", true},
    {SYS_recvfrom, "receives from ", true},
    {SYS_recvmsg, "receives from ", true},
    {SYS_sendto, "sends to ", true},
    {SYS_ppoll, "waits for files (poll)", false},
    {SYS_epoll_pwait, "waits for files (epoll)", false},
    {SYS_pselect6, "waits for files (select)", false},
    {SYS_clock_nanosleep, "sleeps", false},
    {SYS_nanosleep, "sleeps", false},
    {SYS_wait4, "waits for a child process", false},
    {SYS_waitid, "waits for a child process", false},
    {SYS_fsync, "waits for the disk with ", true},
    {SYS_flock, "waits for the lock of ", true},
#ifdef SYS_poll
    {SYS_poll, "waits for files (poll)", false},
    {SYS_epoll_wait, "waits for files (epoll)", false},
    {SYS_select, "waits for files (select)", false},
    {SYS_pause, "waits for a signal", false},
#endif
};

}  // namespace

std::string system_call_of(pid_t pid, pid_t thread) {
  std::ifstream file(formatted("/proc/{}/task/{}/syscall", pid, thread));
  std::string number, first;
  file >> number >> first;
  if (number == "running") return "runs";
  for (const SystemCall& call : calls) {
    if (std::to_string(call.number) != number) continue;
    if (!call.of_file) return call.words;
    char target[512];
    const std::string link = formatted("/proc/{}/fd/{}", pid, std::strtol(first.c_str(), nullptr, 16));
    const ssize_t size = readlink(link.c_str(), target, sizeof target);
    return call.words + (size > 0 ? std::string(target, static_cast<std::size_t>(size)) : "a file");
  }
  return {};
}

}  // namespace hvd::rank
