/// The number of calls of the driver: the cost of an operation besides the work itself.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <tuple>
#include <vector>

#include "gpu/cuda/stream_queue.h"
#include "gpu_operations.h"

extern "C" int fake_cuda_calls(const char* function);

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr int tensors = 40;

/// A caller like torch: the context is current on its thread, its tensors are on one stream.
class Caller {
 public:
  Caller(Rank& rank, void* stream) : rank_(rank), gpu_(rank), stream_(stream) {
    gpu_.gpu().driver().push(gpu_.gpu().context());
    for (int i = 0; i < tensors; ++i) {
      memory_.push_back(gpu_.empty(400));
      std::memset(memory_.back(), 0, 400);
      names_.push_back("gradient." + std::to_string(i));
    }
  }
  ~Caller() {
    cuStreamSynchronize(stream_);
    cuda::Context was = nullptr;
    gpu_.gpu().driver().pop(&was);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  hvd_request request(int i) const {
    hvd_request q =
        gpu_.on_gpu(Rank::request(HVD_ALLREDUCE, names_[static_cast<std::size_t>(i)].c_str(), {100},
                                  memory_[static_cast<std::size_t>(i)], memory_[static_cast<std::size_t>(i)]));
    q.stream = stream_;
    return q;
  }
  void wait(core::Operation& op) {
    EXPECT(rank_.engine().wait(op, 120));
    EXPECT(op.status == HVD_OK);
    op.hold_own();
  }
  /// Submits all of them, one by one or together.
  void step(bool together) {
    std::vector<core::Operation*> ops;
    std::vector<hvd_request> requests;
    for (int i = 0; i < tensors; ++i) requests.push_back(request(i));
    if (together)
      ops = rank_.submit_many(requests);
    else
      for (const hvd_request& q : requests) ops.push_back(&rank_.submit(q));
    for (core::Operation* op : ops) wait(*op);
    for (core::Operation* op : ops) gpu_.release(*op);
  }

 private:
  Rank& rank_;
  GpuRank gpu_;
  void* stream_;
  std::vector<void*> memory_;
  std::vector<std::string> names_;
};

/// The number of calls since this object was made.
class Calls {
 public:
  Calls() {
    for (const char* name : names) before_.push_back(fake_cuda_calls(name));
  }
  int all() const { return fake_cuda_calls(nullptr) - all_; }
  std::string text() const {
    std::string text = std::to_string(all()) + " calls:";
    for (std::size_t i = 0; i < before_.size(); ++i)
      if (const int n = fake_cuda_calls(names[i]) - before_[i])
        text += std::string(" ") + names[i] + " " + std::to_string(n);
    return text;
  }
  int of(const char* name) const {
    for (std::size_t i = 0; i < before_.size(); ++i)
      if (std::string(names[i]) == name) return fake_cuda_calls(name) - before_[i];
    return -1;
  }

 private:
  static constexpr const char* names[] = {
      "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxGetCurrent",   "cuThreadExchangeStreamCaptureMode",
      "cuStreamIsCapturing", "cuStreamGetId",      "cuStreamWaitEvent", "cuEventRecord",
      "cuEventQuery",        "cuEventCreate",      "cuLaunchKernel",    "cuMemAlloc_v2"};
  std::vector<int> before_;
  const int all_ = fake_cuda_calls(nullptr);
};

}  // namespace

TEST_CASE("calls of the driver: a step of tensors on the default stream") {
  for (const bool together : {false, true})
    run_world(1, 1, [together](Rank& rank) {
      Caller caller(rank, nullptr);
      for (int i = 0; i < 3; ++i) caller.step(together);
      constexpr int steps = 5;
      const Calls calls;
      for (int i = 0; i < steps; ++i) caller.step(together);
      MESSAGE(std::string(together ? "together: " : "one by one: ") << calls.text());
      EXPECT(calls.of("cuCtxPushCurrent_v2") <= 2);  // once on a thread of the runtime
      EXPECT(calls.of("cuStreamGetId") == 0);
      // One by one it depends on the number of batches: two calls for a tensor, six or more for a batch.  The number of
      // queries depends on the time that the fake GPU takes.
      EXPECT(calls.all() - calls.of("cuEventQuery") <= steps * (together ? tensors / 2 : tensors * 8));
    });
}

TEST_CASE("calls of the driver: one rank packs and copies nothing, and a lone tensor is scaled where it lies") {
  if (!has_kernels()) return;
  for (const int ranks : {1, 2})
    run_world(ranks, ranks, [ranks](Rank& rank) {
      GpuRank gpu(rank);
      for (int round = 0; round < 2; ++round)
        for (const auto& [reduce, before, after, launches] :
             {std::tuple{HVD_SUM, 1.0, 1.0, 0}, {HVD_AVERAGE, 1.0, 1.0, 0}, {HVD_SUM, 1.5, 3.0, 2}}) {
          const auto v = floats(1000, rank.rank(), round);
          void* t = gpu.tensor(v.data(), 4000, 0);
          hvd_request q = Rank::request(HVD_ALLREDUCE, "lone", {1000}, t, t, HVD_F32, reduce);
          q.prescale = before, q.postscale = after;
          float one = 1;
          EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "before", {1}, &one, &one)) == HVD_OK);
          const Calls calls;
          gpu.run(q);
          EXPECT(near(read(t, 1000), sum_of_floats(1000, ranks, round,
                                                   static_cast<float>(before * after) /
                                                       (reduce == HVD_AVERAGE ? static_cast<float>(ranks) : 1.f))));
          EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "behind", {1}, &one, &one)) == HVD_OK);
          EXPECT(calls.of("cuLaunchKernel") == launches * ranks);
          EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "counted", {1}, &one, &one)) == HVD_OK);
        }
      std::vector<core::Operation*> ops;
      if (ranks > 1) return;
      std::vector<void*> outs;
      const Calls calls;
      for (int i = 0; i < 5; ++i) {
        const auto v = floats(100, 0, i);
        void* in = gpu.tensor(v.data(), 400);
        outs.push_back(i % 2 ? gpu.empty(400) : in);
        const std::string name = "many" + std::to_string(i);
        ops.push_back(&rank.submit(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, name.c_str(), {100}, in, outs.back()))));
      }
      for (int i = 0; i < 5; ++i) {
        gpu.arrive(*ops[static_cast<std::size_t>(i)]);
        gpu.release(*ops[static_cast<std::size_t>(i)]);
        EXPECT(read(outs[static_cast<std::size_t>(i)], 100) == floats(100, 0, i));
      }
      EXPECT(calls.of("cuLaunchKernel") == 0);
    });
}

TEST_CASE("calls of the driver: a mark on a caller's stream") {
  cuda::Gpu& gpu = cuda::Gpu::at(7);
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  const cuda::Stream own = gpu.make_stream();
  for (const cuda::Stream stream : {cuda::Stream{nullptr}, own}) {
    gpu.mark_caller(stream);  // the event is in the pool from now on
    const Calls calls;
    gpu.mark_caller(stream);
    CHECK_MESSAGE(calls.all() == (stream ? 3 : 2), calls.text());
  }
}

TEST_CASE(
    "calls of the driver: whoever has another context current gets it back, and a mark is made in the right one") {
  cuda::Gpu &gpu = cuda::Gpu::at(7), &other = cuda::Gpu::at(6);
  cuda::Context found = nullptr;
  for (const cuda::Context current : {cuda::Context{nullptr}, other.context()}) {
    if (current) gpu.driver().push(current);
    CHECK(gpu.mark_caller(nullptr) != nullptr);
    gpu.driver().get_current(&found);
    CHECK(found == current);
    if (current) gpu.driver().pop(&found);
  }
}

TEST_CASE("calls of the driver: a stream that waits for a batch does not wait again") {
  cuda::Gpu& gpu = cuda::Gpu::at(7);
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  std::atomic<bool> busy{false};
  trace::Tracer tracer;
  cuda::StreamQueue queue(busy, tracer);
  const cuda::Stream ours = gpu.make_stream(), own = gpu.make_stream();
  const auto end = queue.add(gpu.mark(ours));
  const gpu::StreamId id = gpu.id_of(own);
  const Calls calls;
  for (int i = 0; i < 10; ++i) end->hold(nullptr, 0), end->hold(own, id);
  CHECK_MESSAGE(calls.of("cuStreamWaitEvent") == 2, calls.text());
  CHECK_MESSAGE(calls.all() == 4, calls.text());  // one query for each: is it being captured?
  end->hold(own, 0);                              // it may be another one with the same handle
  CHECK(calls.of("cuStreamWaitEvent") == 3);
}

TEST_CASE("calls of the driver: a busy device is asked every 20 µs") {
  cuda::Gpu& gpu = cuda::Gpu::at(7);
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  std::atomic<bool> busy{false};
  trace::Tracer tracer;
  cuda::StreamQueue queue(busy, tracer);
  const cuda::Stream ours = gpu.make_stream();
  char from = 1, to = 0;
  const auto begin = std::chrono::steady_clock::now();
  fake_cuda_copy_later(&to, &from, 1, ours, 20000);
  queue.add(gpu.mark(ours));
  const Calls calls;
  while (queue.busy()) CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  const auto passed = std::chrono::steady_clock::now() - begin;
  CHECK(passed >= std::chrono::milliseconds(20));
  CHECK(calls.of("cuEventQuery") <= 2 * (passed / std::chrono::microseconds(20) + 1));
}
