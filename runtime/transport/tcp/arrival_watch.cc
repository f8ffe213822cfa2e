#include "transport/tcp/arrival_watch.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace hvd::transport::tcp {

ArrivalWatch::ArrivalWatch(int fd, std::function<void()> arrived)
    : fd_(fd),
      arrived_(std::move(arrived)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  epoll_event event{};
  event.data.fd = fd_;
  epoll_event stop{};
  stop.events = EPOLLIN;
  stop.data.fd = stop_.get();
  epoll_event timer{};
  timer.events = EPOLLIN | EPOLLET;
  timer.data.fd = timer_.get();
  if (!epoll_ || !stop_ || !timer_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd_, &event) != 0 ||
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_.get(), &stop) != 0 ||
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &timer) != 0)
    throw Error(Code::unavailable, "epoll", errno_text(errno), "use --transport mpi");
  // This thread blocks all signals, so the user's threads handle them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ArrivalWatch::stop() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void ArrivalWatch::arm(bool on) {
  if (!armed_.exchange(on, std::memory_order_seq_cst) && !on) return;
  epoll_event event{};
  event.events = on ? EPOLLIN | EPOLLONESHOT : 0u;
  event.data.fd = fd_;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd_, &event);
}

void ArrivalWatch::call_later() {
  const itimerspec after{{}, {0, 1'000'000}};
  timerfd_settime(timer_.get(), 0, &after, nullptr);
}

void ArrivalWatch::run() {
  for (;;) {
    epoll_event event{};
    if (epoll_wait(epoll_.get(), &event, 1, -1) != 1) continue;
    if (event.data.fd == stop_.get()) return;
    arrived_();
  }
}

}  // namespace hvd::transport::tcp
