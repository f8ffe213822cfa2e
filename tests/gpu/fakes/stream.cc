/// @file stream.cc — see stream.h.
#include "stream.h"

#include <time.h>

#include <atomic>
#include <utility>

namespace fake {
namespace {

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

void Point::reach() {
  std::lock_guard lock(mutex);
  reached = true;
  at_ns = now_ns();
  changed.notify_all();
}

Stream::Stream(unsigned seed)
    : id_([] {
        static std::atomic<unsigned long long> made{0};
        return ++made;
      }()),
      random_(seed),
      thread_([this] { run(); }) {}

Stream::~Stream() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Stream::put(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

std::shared_ptr<Point> Stream::point() {
  auto p = std::make_shared<Point>();
  put([p] { p->reach(); });
  return p;
}

bool Stream::idle() {
  std::lock_guard lock(mutex_);
  return work_.empty() && !busy_;
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !work_.empty(); });
    if (work_.empty()) return;
    auto work = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    lock.unlock();
    if (most_delay_us() > 0) {
      const long us = static_cast<long>(random_()) % most_delay_us();
      const timespec pause{0, us * 1000};
      nanosleep(&pause, nullptr);
    }
    work();
    lock.lock();
    busy_ = false;
  }
}

}  // namespace fake
