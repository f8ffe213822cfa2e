/// StreamQueue reports the progress of the GPU in each batch, and the time for which a stream waited for results.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu/cuda/stream_queue.h"
#include "gpu_operations.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr int ms = 1000;  // in µs

/// Two streams: the caller's, and the runtime's. A test gives the duration of each computation and exchange.
class Batches {
 public:
  Batches() : own(gpu.make_stream()), ours(gpu.make_stream()) { queue.measure(); }
  ~Batches() { wait_for_all(); }

  /// The GPU computes a tensor.
  std::shared_ptr<gpu::StreamMark> compute(int us) {
    fake_cuda_copy_later(&computed_, &from_, 1, own, us);
    return gpu.mark_caller(own);
  }
  std::shared_ptr<cuda::StreamEnd> exchange(const std::vector<gpu::DeviceTensor>& tensors, int us) {
    for (const gpu::DeviceTensor& t : tensors) cuda::mark_of(t).hold(ours);
    fake_cuda_copy_later(&exchanged_, &from_, 1, ours, us);
    return queue.add(gpu.mark(ours, true), nullptr, nullptr, cuda::inputs_of(tensors));
  }
  void hold(const cuda::StreamEnd& end) { end.hold(own, gpu.id_of(own)); }
  void wait_for_all() {
    cuStreamSynchronize(own);
    cuStreamSynchronize(ours);
  }
  double waited_ms() {
    wait_for_all();
    queue.reap();
    return static_cast<double>(queue.waits().take()) / 1e6;
  }

  cuda::Gpu& gpu = cuda::Gpu::at(6);
  const cuda::CurrentContext current{gpu.driver(), gpu.context()};
  const cuda::Stream own, ours;
  std::atomic<bool> busy{false};
  trace::Tracer tracer;
  cuda::StreamQueue queue{busy, tracer};

 private:
  char from_ = 1, computed_ = 0, exchanged_ = 0;
};

gpu::DeviceTensor tensor(const char* name, std::shared_ptr<gpu::StreamMark> ready) {
  gpu::DeviceTensor t;
  t.name = name;
  t.ready = std::move(ready);
  return t;
}

bool comes(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

}  // namespace

TEST_CASE("waits: the first tensor that the GPU has not computed") {
  using State = gpu::DeviceWait::State;
  Batches b;
  CHECK(b.queue.wait().state == State::none);
  const auto a = b.compute(0), late = b.compute(300 * ms);
  b.exchange({tensor("a", a), tensor("b", a), tensor("c", late), tensor("d", late)}, 300 * ms);
  b.exchange({tensor("e", b.compute(0))}, 0);
  REQUIRE(comes([&] { return b.queue.wait().late == "c"; }));
  CHECK(b.queue.wait().state == State::computing);
  CHECK(b.queue.wait().tensor == "a");
  REQUIRE(comes([&] { return b.queue.wait().state == State::exchanging; }));
  CHECK(b.queue.wait().tensor == "a");
  CHECK(b.queue.wait().late.empty());
  b.wait_for_all();
  b.queue.reap();
  CHECK(b.queue.wait().state == State::none);
  CHECK(b.queue.lost().empty());
}

/// Returns whether the wait of one of 20 rounds is at least @p least ms and less than @p most ms. A loaded machine
/// delays the fake GPU's threads, so a single round may wait for longer or for less.
bool waits_between(double least, double most, const std::function<void(Batches&)>& round) {
  bool found = false;
  for (int i = 0; i < 20 && !found; ++i) {
    Batches b;
    round(b);
    const double waited = b.waited_ms();
    MESSAGE("waited for " << waited << " ms");
    found = waited >= least && waited < most;
    CHECK(b.waited_ms() == 0);
  }
  return found;
}

TEST_CASE("waits: a stream that waits for a batch before it computes the next") {
  CHECK(waits_between(4 * 19, 4 * 25, [](Batches& b) {
    for (int step = 0; step < 4; ++step) b.hold(*b.exchange({tensor("a", b.compute(5 * ms))}, 20 * ms));
  }));
}

TEST_CASE("waits: while a backward pass goes on, the GPU does not wait for its first batches") {
  CHECK(waits_between(3 * 9, 3 * 15, [](Batches& b) {
    for (int step = 0; step < 3; ++step) {
      std::vector<std::shared_ptr<cuda::StreamEnd>> ends;
      for (const char* name : {"a", "b", "c"}) ends.push_back(b.exchange({tensor(name, b.compute(10 * ms))}, 10 * ms));
      for (const auto& end : ends) b.hold(*end);
    }
  }));
}

TEST_CASE("waits: a stream that never waits for its results") {
  Batches b;
  for (int step = 0; step < 3; ++step) b.exchange({tensor("a", b.compute(0))}, 5 * ms);
  CHECK(b.waited_ms() == 0);
}
