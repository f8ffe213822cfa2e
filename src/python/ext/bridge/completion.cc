#include "completion.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace hvd::bridge {
namespace {

constexpr std::chrono::milliseconds patience{20};

class CompletionThreads {
 public:
  void post(Completion* ended) {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    if (!started_) {
      started_ = true;
      ++idle_;
      std::thread([this] { run(); }).detach();
    }
    ended->next = nullptr;
    (last_ ? last_->next : first_) = ended;
    last_ = ended;
    if (idle_ > 0)
      some_.notify_one();
    else
      relieve();
  }

  void stop() {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }

 private:
  /// All threads are busy: has one look whether they go on.  Under the lock.
  void relieve() {
    if (watched_) return;
    watched_ = true;
    if (!watching_) {
      watching_ = true;
      std::thread([this] { watch(); }).detach();
    }
    stuck_.notify_one();
  }

  void watch() {
    std::unique_lock lock(mutex_);
    for (;;) {
      stuck_.wait(lock, [this] { return watched_; });
      const std::uint64_t before = taken_;
      lock.unlock();
      std::this_thread::sleep_for(patience);
      lock.lock();
      if (stopped_) return;
      if (first_ && taken_ == before) {
        ++idle_;
        std::thread([this] { run(); }).detach();
      }
      watched_ = first_ != nullptr;
    }
  }

  /// One thread; counted as idle when it is made.
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      some_.wait(lock, [this] { return first_ != nullptr; });
      if (stopped_) return;
      --idle_;
      while (first_ && !stopped_) {
        Completion* now = first_;
        first_ = now->next;
        if (!first_) last_ = nullptr;
        ++taken_;
        if (first_ && idle_ == 0) relieve();
        lock.unlock();
        now->finish();
        lock.lock();
      }
      ++idle_;
    }
  }

  std::mutex mutex_;
  std::condition_variable some_, stuck_;
  Completion* first_ = nullptr;
  Completion* last_ = nullptr;
  std::uint64_t taken_ = 0;
  int idle_ = 0;
  bool started_ = false, stopped_ = false;
  bool watching_ = false;  ///< there is a thread that watches
  bool watched_ = false;   ///< and it has been asked to
};

/// Never destroyed: its threads use it until the process is gone.
CompletionThreads& threads() {
  static CompletionThreads* const the_threads = new CompletionThreads;
  return *the_threads;
}

/// One thread that asks those that are not ready.
class ReadinessPoller {
 public:
  void post(Completion* ended) {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    if (!started_) {
      started_ = true;
      std::thread([this] { run(); }).detach();
    }
    ended->next = nullptr;
    (last_ ? last_->next : first_) = ended;
    last_ = ended;
    some_.notify_one();
  }

  void stop() {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    some_.notify_one();
  }

 private:
  void run() {
    constexpr std::chrono::microseconds shortest{20}, longest{200};
    std::vector<Completion*> waiting;
    auto pause = shortest;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        if (waiting.empty()) some_.wait(lock, [this] { return stopped_ || first_; });
        if (stopped_) return;
        if (first_) pause = shortest;
        for (; first_; first_ = first_->next) waiting.push_back(first_);
        last_ = nullptr;
      }
      const std::size_t before = waiting.size();
      std::erase_if(waiting, [](Completion* ended) {
        if (!ended->ready()) return false;
        threads().post(ended);
        return true;
      });
      pause = waiting.size() < before ? shortest : std::min(2 * pause, longest);
      if (!waiting.empty()) std::this_thread::sleep_for(pause);
    }
  }

  std::mutex mutex_;
  std::condition_variable some_;
  Completion* first_ = nullptr;
  Completion* last_ = nullptr;
  bool started_ = false, stopped_ = false;
};

/// Never destroyed either.
ReadinessPoller& poller() {
  static ReadinessPoller* const the_poller = new ReadinessPoller;
  return *the_poller;
}

}  // namespace

void post(Completion* ended) { threads().post(ended); }
void post_when_ready(Completion* ended) { poller().post(ended); }
void stop_completions() {
  poller().stop();
  threads().stop();
}

}  // namespace hvd::bridge
