#include "ext/bridge/completion.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace {

using hvd::bridge::Completion;
using hvd::bridge::post;

constexpr std::chrono::seconds limit{20};

/// A count that threads wait for.
class Count {
 public:
  void add() {
    std::lock_guard lock(mutex_);
    ++value_;
    changed_.notify_all();
  }
  bool reaches(int wanted) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return value_ >= wanted; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int value_ = 0;
};

struct Task final : Completion {
  explicit Task(std::function<void()> what) : what_(std::move(what)) {}
  void finish() override {
    const std::function<void()> what = std::move(what_);
    delete this;
    what();
  }
  bool ready() override { return !is_ready || *is_ready; }
  std::function<void()> what_;
  std::shared_ptr<std::atomic<bool>> is_ready;
};

void later(std::function<void()> what) { post(new Task(std::move(what))); }

}  // namespace

TEST_CASE("completions: what is posted is done once, in order") {
  auto order = std::make_shared<std::vector<int>>();
  auto done = std::make_shared<Count>();
  for (int i = 0; i < 1000; ++i)
    later([=] {
      order->push_back(i);
      done->add();
    });
  REQUIRE(done->reaches(1000));
  for (int i = 0; i < 1000; ++i) CHECK((*order)[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("completions: what is not ready holds up nothing, and is done once it is") {
  auto done = std::make_shared<Count>();
  auto gate = std::make_shared<std::atomic<bool>>(false);
  auto early = std::make_shared<std::atomic<int>>(0);
  for (int i = 0; i < 50; ++i) {
    auto* shut = new Task([=] {
      if (!*gate) ++*early;
      done->add();
    });
    shut->is_ready = gate;
    hvd::bridge::post_when_ready(shut);
    auto* open = new Task([=] { done->add(); });
    hvd::bridge::post_when_ready(open);
    later([=] { done->add(); });
  }
  REQUIRE(done->reaches(100));
  *gate = true;
  REQUIRE(done->reaches(150));
  CHECK(*early == 0);
}

TEST_CASE("completions: one that waits for those behind it does not wait for ever") {
  for (const int depth : {1, 5}) {
    auto done = std::make_shared<Count>();
    auto well = std::make_shared<Count>();
    for (int i = 0; i < depth; ++i)
      later([=] {
        if (done->reaches(1)) well->add();
      });
    later([=] { done->add(); });
    CHECK(well->reaches(depth));
  }
}

TEST_CASE("completions: posted from many threads, and from completions") {
  auto done = std::make_shared<Count>();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([=] {
      for (int i = 0; i < 200; ++i) later([=] { later([=] { done->add(); }); });
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(done->reaches(800));
}
