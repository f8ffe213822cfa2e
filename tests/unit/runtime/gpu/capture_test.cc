/// CUDA graphs: a capture elsewhere in the process stays valid, and an operation that cannot be captured is refused in
/// time.
#include <doctest/doctest.h>

#include <barrier>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "gpu/cuda/gpu.h"
#include "gpu_operations.h"

extern "C" int cuStreamBeginCapture_v2(void* stream, int mode);
extern "C" int cuStreamEndCapture(void* stream, void** graph);
extern "C" int cuGraphDestroy(void* graph);
extern "C" int fake_cuda_graph_nodes(const void* graph);
extern "C" int cuMemAlloc_v2(hvd::cuda::Pointer* address, std::size_t bytes);
extern "C" int cuEventQuery(void* event);
extern "C" int fake_cuda_allocations(int device);

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr int global = 0;

/// A capture by the calling thread.
class Capturing {
 public:
  explicit Capturing(void* stream, int mode = global) : stream_(stream) {
    REQUIRE(cuStreamBeginCapture_v2(stream, mode) == 0);
  }
  ~Capturing() { end(); }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;
  /// Returns the number of the graph's nodes; -1: the capture is invalid.
  int end() {
    if (!stream_) return -1;
    void* graph = nullptr;
    if (cuStreamEndCapture(std::exchange(stream_, nullptr), &graph) != 0) return -1;
    const int nodes = fake_cuda_graph_nodes(graph);
    cuGraphDestroy(graph);
    return nodes;
  }

 private:
  void* stream_;
};

void* make_stream(cuda::Gpu& gpu) {
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  return gpu.make_stream();
}

/// Returns the error with which @p call is refused.
std::string refused(const std::function<void()>& call, Code code = Code::usage) {
  try {
    call();
  } catch (const Error& e) { return e.code == code ? e.what() : "another code: " + std::string(e.what()); }
  return "";
}

}  // namespace

TEST_CASE("the fake driver refuses what a capture elsewhere forbids, and the capture is void then") {
  cuda::Gpu& gpu = cuda::Gpu::at(0);
  void* stream = make_stream(gpu);
  cuda::Pointer p = 0;
  {
    Capturing capture(stream);
    int from_elsewhere = 0;
    std::thread([&] {
      cuda::Context was = nullptr;
      gpu.driver().push(gpu.context());
      from_elsewhere = cuMemAlloc_v2(&p, 16);
      gpu.driver().pop(&was);
    }).join();
    CHECK(from_elsewhere == 900);
    CHECK(gpu.capturing(stream));
    CHECK(capture.end() == -1);
  }
  CHECK(!gpu.capturing(stream));
  {
    Capturing capture(stream);
    const cuda::CurrentContext current(gpu.driver(), gpu.context());
    const auto before = gpu.mark(make_stream(gpu));  // the rank's own stream, elsewhere
    CHECK(cuMemAlloc_v2(&p, 16) == 0);
    before->reached();
    CHECK(capture.end() == 0);
    CHECK(gpu.driver().mem_free(p) == 0);
  }
  {
    Capturing capture(stream);
    const cuda::CurrentContext current(gpu.driver(), gpu.context());
    const auto inside = gpu.mark(stream);
    CHECK(cuEventQuery(inside->event()) == 907);  // in no mode
    CHECK(capture.end() == -1);
  }
}

TEST_CASE("operations of all kinds run, and memory is allocated, while another thread captures") {
  const auto all = [](int streams, bool host) {
    core::Config config;
    config.set("HOROVOD_NUM_NCCL_STREAMS", streams);
    send_through_host(config, host ? nccl::gpu_kinds : 0);
    void* stream = make_stream(cuda::Gpu::at(3));
    std::barrier joined(3), over(3);
    std::future<int> nodes = std::async(std::launch::async, [&] {
      joined.arrive_and_wait();
      Capturing capture(stream);
      joined.arrive_and_wait();
      over.arrive_and_wait();
      return capture.end();
    });
    const auto operations = [&](Rank& rank) {
      {
        GpuRank gpu(rank);  // makes the communicators: NCCL's own threads would make the capture invalid
        void* t = gpu.empty(4);
        gpu.run(Rank::request(HVD_ALLREDUCE, "first", {1}, t, t));
      }
      joined.arrive_and_wait();
      joined.arrive_and_wait();
      all_operations(rank);
      over.arrive_and_wait();
    };
    run_world(2, 2, operations, config);
    CHECK(nodes.get() == 0);
  };
  all(1, false);
  all(2, false);
  all(1, true);
}

TEST_CASE("plain submission is refused while the stream is being captured; the graph and the name stay good") {
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    const auto v = floats(10, rank.rank());
    void* t = gpu.tensor(v.data(), 40, 0);
    cuStreamSynchronize(gpu.stream());
    const hvd_request q = gpu.on_gpu(Rank::request(HVD_ALLREDUCE, "gradient", {10}, t, t));
    for (const bool known : {false, true}) {
      for (const int mode : {0, 1, 2}) {
        EXPECT(cuStreamBeginCapture_v2(gpu.stream(), mode) == 0);
        const std::string text = refused([&] { rank.submit(q); }, Code::capturing);
        EXPECT(text.find("'gradient': the stream that makes its tensor is being captured into a CUDA graph") == 0);
        void* graph = nullptr;
        EXPECT(cuStreamEndCapture(gpu.stream(), &graph) == 0);
        cuGraphDestroy(graph);
      }
      gpu.run(Rank::request(HVD_ALLREDUCE, "gradient", {10}, t, t));
      EXPECT(read(t, 10) == sum_of_floats(10, 2, 0, known ? 2 : 1));
    }
  });
}

TEST_CASE("a stream that is being captured waits for no result, which stays") {
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    const auto v = floats(10, rank.rank());
    void* t = gpu.tensor(v.data(), 40);
    core::Operation& op = rank.submit(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, "early", {10}, t, t)));
    EXPECT(rank.engine().wait(op, 120));
    EXPECT(cuStreamBeginCapture_v2(gpu.stream(), global) == 0);
    const std::string text = refused([&] { op.hold(gpu.stream()); });
    EXPECT(text.find("the stream that is to wait for the result is being captured") != std::string::npos);
    void* graph = nullptr;
    EXPECT(cuStreamEndCapture(gpu.stream(), &graph) == 0);
    cuGraphDestroy(graph);
    gpu.arrive(op);
    gpu.release(op);
    EXPECT(read(t, 10) == sum_of_floats(10, 2));
  });
}

TEST_CASE("a result that is let go while its stream is being captured comes back behind the capture") {
  cuda::Gpu& gpu = cuda::Gpu::at(5);
  void* stream = make_stream(gpu);
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  const cuda::Pointer block = gpu.allocate(5000, nullptr);
  gpu.lend(block, stream);
  {
    Capturing capture(stream);
    CHECK(cuda::free_anywhere(reinterpret_cast<void*>(block)));
    const cuda::Pointer other = gpu.allocate(5000, nullptr);
    CHECK(other != block);
    gpu.free(other);
    CHECK(capture.end() == 0);
  }
  const cuda::Pointer first = gpu.allocate(5000, nullptr);  // takes it back; the mark may not be reached yet
  cuStreamSynchronize(stream);
  const cuda::Pointer second = gpu.allocate(5000, nullptr);
  CHECK((first == block || second == block));
  gpu.free(first);
  gpu.free(second);
  CHECK(gpu.given() == 0);
}

TEST_CASE("a result of one that knows no stream comes back, and no capture minds") {
  cuda::Gpu& gpu = cuda::Gpu::at(5);
  void* stream = make_stream(gpu);
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  const cuda::Pointer block = gpu.allocate(5000, nullptr);
  gpu.lend(block, cuda::whole_context);
  Capturing capture(stream);
  CHECK(cuda::free_anywhere(reinterpret_cast<void*>(block)));
  CHECK(capture.end() == 0);
  CHECK(gpu.given() == 0);
}

TEST_CASE("the default stream is of no use while one that waits for it is being captured") {
  cuda::Gpu& gpu = cuda::Gpu::at(6);
  cuda::Stream blocking = nullptr;
  {
    const cuda::CurrentContext current(gpu.driver(), gpu.context());
    REQUIRE(gpu.driver().stream_create(&blocking, 0, 0) == 0);
  }
  CHECK(!gpu.capturing(nullptr));
  Capturing capture(blocking);
  CHECK(gpu.capturing(nullptr));
  CHECK(!gpu.capturing(make_stream(gpu)));
  CHECK(capture.end() == 0);
  CHECK(!gpu.capturing(nullptr));
}

TEST_CASE("memory comes from the driver only while a program warms up") {
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    std::vector<std::vector<float>> v;
    for (std::size_t n : {10, 1000, 70000}) v.push_back(floats(n, rank.rank()));
    const auto round = [&] {
      for (const auto& x : v) {
        const auto n = static_cast<std::int64_t>(x.size());
        void* t = gpu.tensor(x.data(), x.size() * 4, 0);
        gpu.run(Rank::request(HVD_ALLREDUCE, ("sum" + std::to_string(n)).c_str(), {n}, t, t, HVD_F32, HVD_AVERAGE));
        gpu.take<float>(Rank::request(HVD_ALLGATHER, ("rows" + std::to_string(n)).c_str(), {n}, t, nullptr));
        gpu.run(Rank::request(HVD_ALLREDUCE, ("host" + std::to_string(n)).c_str(), {n}, t, t, HVD_I16));
      }
    };
    for (int i = 0; i < 3; ++i) round();
    const int calls = fake_cuda_allocations(gpu.gpu().ordinal());
    for (int i = 0; i < 5; ++i) round();
    EXPECT(fake_cuda_allocations(gpu.gpu().ordinal()) == calls);
  });
}
