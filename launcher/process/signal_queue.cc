#include "launcher/process/signal_queue.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace hvd::launcher {

namespace {

bool is_ignored(int number) {
  struct sigaction now {};
  return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

SignalQueue::SignalQueue() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : ending_signals)
    if (number != SIGHUP || !is_ignored(number)) sigaddset(&set, number);
  for (const int number : {SIGCHLD, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) sigaddset(&set, number);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  fd_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw Error(Code::unavailable, "signalfd", errno_text(errno));
}

std::optional<int> SignalQueue::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace hvd::launcher
