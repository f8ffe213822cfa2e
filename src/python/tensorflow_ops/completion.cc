#include "completion.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace hvd::tensorflow {
namespace {

class Thread {
 public:
  void post(Ended* ended) {
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
  }

 private:
  void run() {
    for (;;) {
      Ended* now = nullptr;
      {
        std::unique_lock lock(mutex_);
        some_.wait(lock, [this] { return first_ != nullptr; });
        if (stopped_) return;
        now = first_;
        first_ = last_ = nullptr;
      }
      while (now) {
        Ended* next = now->next;
        now->finish();
        now = next;
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable some_;
  Ended* first_ = nullptr;
  Ended* last_ = nullptr;
  bool started_ = false, stopped_ = false;
};

/// Never destroyed: the thread uses it until the process is gone.
Thread& thread() {
  static Thread* const the_thread = new Thread;
  return *the_thread;
}

}  // namespace

void post(Ended* ended) { thread().post(ended); }
void stop_completions() { thread().stop(); }

}  // namespace hvd::tensorflow
