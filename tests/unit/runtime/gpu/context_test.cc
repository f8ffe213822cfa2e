/// Tensors of a caller that does not know its framework's stream: HVD_WHOLE_CONTEXT.
#include <doctest/doctest.h>

#include "gpu_operations.h"

extern "C" int cuStreamBeginCapture_v2(void* stream, int mode);
extern "C" int cuStreamEndCapture(void* stream, void** graph);

using namespace hvd;
using namespace hvd::testing;

namespace {

struct KnowsNoStream {
  KnowsNoStream() { knows_no_stream = true; }
  ~KnowsNoStream() { knows_no_stream = false; }
};

}  // namespace

TEST_CASE("all operations begin when the whole context is done, and its end is polled for") {
  const KnowsNoStream none;
  core::Config config;
  for (const int ranks : {2, 4}) run_world(ranks, ranks, all_operations, config);
  send_through_host(config, nccl::gpu_kinds);
  run_world(2, 2, all_operations, config);
}

TEST_CASE("the whole context holds several streams, forms by nodes and some operations through host memory too") {
  const KnowsNoStream none;
  core::Config config;
  config.set("HOROVOD_NUM_NCCL_STREAMS", 3);
  send_through_host(config, bit_of(Kind::allreduce) | bit_of(Kind::alltoall));
  run_world(3, 3, all_operations, config);
  send_through_host(config, 0);
  config.set("HOROVOD_HIERARCHICAL_ALLREDUCE", true).set("HOROVOD_HIERARCHICAL_ALLGATHER", true);
  run_world(4, 2, all_operations, config);
}

TEST_CASE("a capture anywhere in the context is an error with a name, and nothing was taken") {
  const KnowsNoStream none;
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    const auto v = floats(10, rank.rank());
    void* t = gpu.tensor(v.data(), 40, 0);
    cuStreamSynchronize(gpu.stream());
    EXPECT(cuStreamBeginCapture_v2(gpu.stream(), 0) == 0);
    std::string text;
    try {
      rank.submit(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, "gradient", {10}, t, t)));
    } catch (const Error& e) { text = e.code == Code::usage ? e.what() : "another code"; }
    EXPECT(text.find("a stream of this GPU is being captured into a graph") != std::string::npos);
    void* graph = nullptr;
    EXPECT(cuStreamEndCapture(gpu.stream(), &graph) == 901);  // as in CUDA: the capture is invalid
    gpu.run(Rank::request(HVD_ALLREDUCE, "gradient", {10}, t, t));
    EXPECT(read(t, 10) == sum_of_floats(10, 2));
  });
}

TEST_CASE("a driver before CUDA 12.5 cannot") {
  cuda::Gpu& gpu = cuda::Gpu::at(0);
  auto& driver = const_cast<cuda::Driver&>(gpu.driver());
  auto* const record = std::exchange(driver.context_record, nullptr);
  const cuda::CurrentContext current(driver, gpu.context());
  std::string text;
  try {
    gpu.mark(cuda::whole_context);
  } catch (const Error& e) { text = e.what(); }
  driver.context_record = record;
  CHECK(text.find("one for CUDA 12.5 or later is needed") != std::string::npos);
}
