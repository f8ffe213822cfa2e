#include "base/process/held_signals.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/process/process.h"

namespace hvd {
namespace {

constexpr std::chrono::seconds kill_limit{2};
constexpr useconds_t between_rounds_us = 2000;

bool has_default_action(int number) {
  struct sigaction now {};
  return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_DFL;
}

}  // namespace

HeldSignals::HeldSignals() : spared_(children_of(::getpid())) {
  sigset_t held;
  ::sigemptyset(&held);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before_);
  bool any = false;
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
    if (::sigismember(&before_, number) || !has_default_action(number)) continue;
    ::sigaddset(&held, number);
    any = true;
  }
  if (any) fd_ = Fd(::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK));
  if (fd_) ::pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

HeldSignals::~HeldSignals() {
  if (fd_) ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void HeldSignals::end_if_asked() {
  pollfd come{fd_.get(), POLLIN, 0};
  if (!fd_ || ::poll(&come, 1, 0) <= 0) return;
  become_subreaper();  // adopts the children of killed processes
  const auto end = std::chrono::steady_clock::now() + kill_limit;
  const auto lives = [](pid_t pid) { return !process_name(pid).empty(); };
  do {
    kill_descendants_once(nullptr, spared_);
    ::usleep(between_rounds_us);
  } while (std::ranges::any_of(descendants(::getpid(), spared_), lives) && std::chrono::steady_clock::now() < end);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace hvd
