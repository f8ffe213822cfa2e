/// @file process_handle_test.cc — a process by handle: with a pidfd, and on a kernel without pidfds.
#include "base/process/process_handle.h"

#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <iterator>

using namespace hvd;
using namespace std::chrono_literals;

namespace {

/// From now on the system calls that are newer than Linux 5.0 fail in this process with @p error.
bool refuse_newer_calls(unsigned error) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 424, 0, 1),  // pidfd_send_signal, the first of them
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

pid_t sleeping_child() {
  const pid_t pid = ::fork();
  if (pid == 0)
    for (;;) ::pause();
  return pid;
}

/// 0, or the number of the line that found something wrong.
int faults() {
  const auto wrong = [](bool good, int line) { return good ? 0 : line; };
  const pid_t child = sleeping_child();
  const std::optional<Maker> maker = maker_of(child);
  if (!maker) return __LINE__;
  const ProcessHandle by_id(child), by_maker(*maker), none;
  Maker older = *maker;
  --older.start_ticks;  // another process that had the id before
  if (by_id.has_ended() || by_maker.has_ended() || none.has_ended()) return __LINE__;
  if (by_id.ends_within(30ms)) return __LINE__;
  const ProcessHandle gone(older);
  if (!gone.has_ended()) return __LINE__;
  gone.signal(SIGKILL);
  if (by_id.ends_within(30ms)) return __LINE__;
  by_maker.signal(SIGKILL);
  if (!by_id.ends_within(10s) || !by_maker.ends_within(10s)) return __LINE__;  // a zombie
  ::waitpid(child, nullptr, 0);
  return wrong(by_id.has_ended() && by_maker.has_ended() && ProcessHandle(child).has_ended(), __LINE__);
}

}  // namespace

TEST_CASE("a process by handle") { CHECK(faults() == 0); }

TEST_CASE("a process by handle, where the kernel or a filter refuses pidfds") {
  for (const unsigned error : {ENOSYS, EPERM}) {
    const pid_t tester = ::fork();
    if (tester == 0) ::_exit(refuse_newer_calls(error) ? faults() : 255);
    int status = 0;
    REQUIRE(::waitpid(tester, &status, 0) == tester);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}
