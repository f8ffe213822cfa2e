#include "base/process/process_handle.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hvd {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

constexpr auto look_every = 20ms;  // without a pidfd
// The numbers are the same on all architectures; old headers lack them.
constexpr long pidfd_send_signal = 424, pidfd_open = 434;

milliseconds left_until(std::chrono::steady_clock::time_point deadline) {
  return std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
}

}  // namespace

ProcessHandle::ProcessHandle(pid_t pid) : pid_(pid) {
  open();
  if (!fd_ && !has_ended_) maker_ = maker_of(pid);
}

ProcessHandle::ProcessHandle(const Maker& process) : pid_(static_cast<pid_t>(process.pid)), maker_(process) {
  open();
  has_ended_ |= is_gone(process);
}

void ProcessHandle::open() {
  fd_ = Fd(static_cast<int>(::syscall(pidfd_open, pid_, 0)));
  has_ended_ = !fd_ && errno == ESRCH;
}

bool ProcessHandle::has_ended() const {
  if (has_ended_ || !*this) return has_ended_;
  if (fd_) {
    pollfd end{fd_.get(), POLLIN, 0};
    return ::poll(&end, 1, 0) > 0;
  }
  if (maker_) return is_gone(*maker_);
  return ::kill(pid_, 0) != 0 && errno == ESRCH;
}

bool ProcessHandle::ends_within(milliseconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (milliseconds left = limit; !has_ended(); left = left_until(deadline)) {
    if (left <= 0ms) return false;
    pollfd end{fd_.get(), POLLIN, 0};  // without a pidfd, poll() ignores it and only waits
    ::poll(&end, 1, static_cast<int>((fd_ ? left : std::min<milliseconds>(left, look_every)).count()));
  }
  return true;
}

void ProcessHandle::signal(int number) const {
  if (has_ended() || !*this) return;
  if (fd_ && (::syscall(pidfd_send_signal, fd_.get(), number, nullptr, 0) == 0 || errno == ESRCH)) return;
  ::kill(pid_, number);
}

}  // namespace hvd
