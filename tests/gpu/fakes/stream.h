/// @file stream.h — the fake GPU's streams and events: real threads, so that a forgotten wait shows as wrong numbers.
///
/// A stream is a thread that runs its work in order, each piece after a short random delay (FAKE_CUDA_DELAY_US, 0:
/// none). An event is a place in a stream's sequence. The fake driver uses this file, and through it the fake NCCL.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

namespace fake {

/// The place that an event recorded; it is reached when the stream has arrived there.
struct Point {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::int64_t at_ns = 0;

  void reach();
  bool is_reached() {
    std::lock_guard lock(mutex);
    return reached;
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return reached; });
  }
};

class Stream {
 public:
  explicit Stream(unsigned seed);
  ~Stream();
  void put(std::function<void()> work);
  std::shared_ptr<Point> point();
  bool idle();
  /// No other stream of the process has, or had, the same number.
  unsigned long long id() const { return id_; }

 private:
  void run();
  const unsigned long long id_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false, stop_ = false;
  std::minstd_rand random_;
  std::thread thread_;
};

/// The longest delay before each piece of work, in microseconds.
inline int most_delay_us() {
  static const int delay = [] {
    const char* text = std::getenv("FAKE_CUDA_DELAY_US");
    return text ? std::atoi(text) : 200;
  }();
  return delay;
}

}  // namespace fake

/// The functions of the fake driver that the fake NCCL uses: work on a stream (nullptr: the default stream), or in the
/// graph that is being captured there. drop(context): the work will not run again.
extern "C" void fake_cuda_enqueue_owned(void* stream, void (*work)(void* context), void* context, void (*drop)(void*));
extern "C" int fake_cuda_capturing(void* stream);
extern "C" int fake_cuda_unsafe();
