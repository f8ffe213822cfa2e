#include "completion.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/condition.h"

namespace hvd::bridge {
namespace {

constexpr std::chrono::milliseconds patience{20};

/// A queue, first in, first out; linked through Completion::next.
class CompletionQueue {
 public:
  bool empty() const { return !first_; }
  void push(Completion* ended) {
    ended->next = nullptr;
    (last_ ? last_->next : first_) = ended;
    last_ = ended;
  }
  /// Takes the first; the queue is not empty.
  Completion* pop() {
    Completion* const ended = first_;
    first_ = ended->next;
    if (!first_) last_ = nullptr;
    return ended;
  }

 private:
  Completion* first_ = nullptr;
  Completion* last_ = nullptr;
};

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
    queue_.push(ended);
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
  /// All threads are busy: makes one check whether they progress. Under the lock.
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
      wait_for_truth(stuck_, lock, [this] { return watched_; });
      const std::uint64_t before = taken_;
      lock.unlock();
      std::this_thread::sleep_for(patience);
      lock.lock();
      if (stopped_) return;
      if (!queue_.empty() && taken_ == before) {
        ++idle_;
        std::thread([this] { run(); }).detach();
      }
      watched_ = !queue_.empty();
    }
  }

  /// The loop of one thread, which counts as idle when it is made.
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wait_for_truth(some_, lock, [this] { return !queue_.empty(); });
      if (stopped_) return;
      --idle_;
      while (!queue_.empty() && !stopped_) {
        Completion* const now = queue_.pop();
        ++taken_;
        if (!queue_.empty() && idle_ == 0) relieve();
        lock.unlock();
        now->finish();
        lock.lock();
      }
      ++idle_;
    }
  }

  std::mutex mutex_;
  std::condition_variable some_, stuck_;
  CompletionQueue queue_;
  std::uint64_t taken_ = 0;
  int idle_ = 0;
  bool started_ = false, stopped_ = false;
  bool watching_ = false;  ///< there is a thread that watches
  bool watched_ = false;   ///< and it has been requested
};

/// Never destroyed: its threads use it until the process ends.
CompletionThreads& threads() {
  static CompletionThreads* const the_threads = new CompletionThreads;
  return *the_threads;
}

/// One thread that polls the completions that are not ready.
class ReadinessPoller {
 public:
  void post(Completion* ended) {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    if (!started_) {
      started_ = true;
      std::thread([this] { run(); }).detach();
    }
    queue_.push(ended);
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
        if (waiting.empty()) wait_for_truth(some_, lock, [this] { return stopped_ || !queue_.empty(); });
        if (stopped_) return;
        if (!queue_.empty()) pause = shortest;
        while (!queue_.empty()) waiting.push_back(queue_.pop());
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
  CompletionQueue queue_;
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
