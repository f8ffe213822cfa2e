/// Errors of a driver or an NCCL. Each case runs in a process of its own, with the environment that provokes it
/// (meson.build), so none runs by default.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>

#include "gpu/nccl/communicator/library.h"
#include "gpu/nccl/launch/gpu_batch.h"
#include "gpu_operations.h"

extern "C" int fake_cuda_calls(const char* function);

using namespace hvd;
using namespace hvd::testing;

namespace {

/// Runs one sum on the GPU of each rank.  Returns the status; *text: the error.  Waits 20 s for the GPU's end.
int sum(Rank& rank, GpuRank& gpu, const char* name, std::string* text, float* result) {
  try {
    float one = 1;
    void* t = gpu.tensor(&one, sizeof one, 0);
    core::Operation& op = rank.submit(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, name, {1}, t, t)));
    if (!rank.engine().wait(op, 120)) return HVD_TIMEOUT;
    if (op.status != HVD_OK) throw Error(static_cast<Code>(op.status), "", op.error);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!op.arrived()) {
      if (std::chrono::steady_clock::now() > end) return HVD_TIMEOUT;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    op.hold(gpu.stream());
    std::memcpy(result, t, sizeof *result);
    gpu.release(op);
    return HVD_OK;
  } catch (const Error& e) {
    *text = e.what();
    return static_cast<int>(e.code);
  }
}

core::Config with_streams(int streams) {
  core::Config config;
  config.set("HOROVOD_NUM_NCCL_STREAMS", streams);
  return config;
}

void expect_failure(int ranks, int which, int status, const std::string& part, const core::Config& config = {}) {
  const auto body = [&](Rank& rank) {
    GpuRank gpu(rank);
    for (int i = 1; i < which; ++i) {
      std::string text;
      float x = 0;
      EXPECT(sum(rank, gpu, ("fine" + std::to_string(i)).c_str(), &text, &x) == HVD_OK);
      EXPECT(x == static_cast<float>(ranks));
    }
    std::string text;
    float x = 0;
    const int got = sum(rank, gpu, "fails", &text, &x);
    if (got != status || text.find(part) == std::string::npos)
      throw std::runtime_error("status " + std::to_string(got) + ": " + text);
  };
  run_world(ranks, ranks, body, config);
  for (int r = 0; r < ranks; ++r) CHECK(cuda::Gpu::at(r).given() == 0);  // the memory of half a batch has been returned
}

void expect_no_gpu(const std::string& part) {
  CHECK(cuda::Driver::get() == nullptr);
  CHECK_MESSAGE(cuda::Driver::why_not().find(part) != std::string::npos, cuda::Driver::why_not());
  run_world(1, 1, [&](Rank& rank) {
    float x = 1;
    hvd_request q = Rank::request(HVD_ALLREDUCE, "x", {1}, &x, &x);
    q.device = 0;
    std::string text;
    EXPECT(rank.try_run(q, &text, 120) == HVD_UNAVAILABLE);
    EXPECT(text.find(part) != std::string::npos);
    q.device = HVD_HOST_DEVICE;
    EXPECT(rank.try_run(q, &text, 120) == HVD_OK);
  });
}

void expect_no_nccl(const std::string& part) {
  CHECK(nccl::Library::get() == nullptr);
  CHECK_MESSAGE(nccl::Library::why_not().find(part) != std::string::npos, nccl::Library::why_not());
  run_world(3, 3, [](Rank& rank) {
    GpuRank gpu(rank);
    std::string text;
    float x = 0;
    EXPECT(sum(rank, gpu, "through host memory", &text, &x) == HVD_OK);
    EXPECT(x == 3);
  });
}

/// Every operation works without a window.
void expect_no_window() { run_world(2, 2, all_operations, with_windows()); }

}  // namespace

TEST_SUITE("errors" * doctest::skip()) {
  TEST_CASE("no driver") { expect_no_gpu("no CUDA driver"); }
  TEST_CASE("driver too old") { expect_no_gpu("the CUDA driver is for 11.0, 11.4 or later is needed"); }
  TEST_CASE("driver does not start") { expect_no_gpu("cuInit: a fake error"); }
  TEST_CASE("no GPU") { expect_no_gpu("sees no GPU"); }
  TEST_CASE("no NCCL") { expect_no_nccl("HVD_NCCL_LIBRARY"); }
  TEST_CASE("NCCL too old") { expect_no_nccl("is NCCL 2.10.3, 2.18 or later is needed"); }
  TEST_CASE("NCCL lacks a symbol") { expect_no_nccl("lacks ncclRedOpCreatePreMulSum"); }
  TEST_CASE("NCCL does not join") {
    expect_failure(3, 1, HVD_UNAVAILABLE, "ncclCommInitRankConfig: unhandled system error (said by the fake )");
  }
  TEST_CASE("an NCCL call fails") { expect_failure(3, 3, HVD_UNAVAILABLE, "ncclAllReduce: internal error"); }
  TEST_CASE("a group fails") { expect_failure(2, 2, HVD_UNAVAILABLE, "ncclGroupEnd: unhandled system error"); }
  TEST_CASE("an asynchronous error") {
    const auto begin = std::chrono::steady_clock::now();
    expect_failure(3, 2, HVD_PEER_LOST, "remote process exited");
    MESSAGE("told after " << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << " s");
  }
  TEST_CASE("no device memory") {
    run_world(1, 1, [](Rank& rank) {
      GpuRank gpu(rank);
      std::vector<float> large(1 << 20);
      std::string text;
      try {
        gpu.take<float>(Rank::request(HVD_ALLGATHER, "large", {1 << 20}, gpu.tensor(large.data(), 4 << 20), nullptr));
      } catch (const Error& e) {
        EXPECT(e.code == Code::unavailable);
        text = e.what();
      }
      EXPECT(text.find("cuda:0: no device memory for 4 MiB (64 of 1024 MiB are free, 0 MiB are this rank's fusion "
                       "buffers and results): out of memory") == 0);
    });
  }
  TEST_CASE("device memory is short") {  // 8 MiB
    cuda::Gpu& gpu = cuda::Gpu::at(0);
    const cuda::CurrentContext current(gpu.driver(), gpu.context());
    const cuda::Pointer small = gpu.allocate(3 << 20, nullptr), large = gpu.allocate(4 << 20, nullptr);
    gpu.free(small);
    CHECK_THROWS_AS(gpu.allocate(5 << 20, nullptr), Error);  // also after the small one was freed
    gpu.free(large);
    const std::size_t odd = (7 << 20) + 4096;  // rounded up it would not fit
    const cuda::Pointer most = gpu.allocate(odd, nullptr);
    CHECK(most != 0);
    gpu.free(most);
    CHECK(gpu.allocate(odd, nullptr) == most);  // from the pool
    gpu.free(most);
    CHECK(gpu.given() == 0);
  }
  TEST_CASE("device memory is short while another set is at work") {  // 8 MiB
    cuda::Gpu& gpu = cuda::Gpu::at(0);
    const cuda::CurrentContext current(gpu.driver(), gpu.context());
    const int mine = 0, other = 0;
    const int freed = fake_cuda_calls("cuMemFree_v2");
    gpu.free(gpu.allocate(4 << 20, nullptr, &mine));
    {
      cuda::DeviceWork work(gpu, &other);
      CHECK_THROWS_AS(gpu.allocate(6 << 20, nullptr, &mine), Error);
      CHECK(fake_cuda_calls("cuMemFree_v2") == freed);
      const cuda::Stream stream = gpu.make_stream();
      char from = 1, to = 0;
      fake_cuda_copy_later(&to, &from, 1, stream, 20000);
      work.queued(gpu.mark(stream));
      CHECK_THROWS_AS(gpu.allocate(6 << 20, nullptr, &mine), Error);
      cuStreamSynchronize(stream);
      CHECK(fake_cuda_calls("cuMemFree_v2") == freed);
      gpu.free(gpu.allocate(6 << 20, nullptr, &mine));  // that work has ended
      CHECK(fake_cuda_calls("cuMemFree_v2") == freed + 1);
    }
    const cuda::DeviceWork own(gpu, &mine);
    gpu.free(gpu.allocate(7 << 20, nullptr, &mine));
    CHECK(fake_cuda_calls("cuMemFree_v2") == freed + 2);
  }
  void sums_of_three(Rank & rank) {  // of 1.5 MB together
    GpuRank gpu(rank);
    const std::vector<std::string> names{"a", "b", "c"};
    for (int round = 0; round < 3; ++round) {
      const auto v = floats(125000, rank.rank(), round);
      std::vector<void*> tensors;
      std::vector<hvd_request> qs;
      for (const std::string& name : names) {
        tensors.push_back(gpu.tensor(v.data(), v.size() * 4));
        qs.push_back(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, name.c_str(), {125000}, tensors.back(), tensors.back())));
      }
      for (core::Operation* op : rank.submit_group(qs)) {
        gpu.arrive(*op);
        gpu.release(*op);
      }
      for (const void* t : tensors) EXPECT(read(t, v.size()) == sum_of_floats(v.size(), 2, round));
    }
  }
  TEST_CASE("no room for a fusion buffer") {  // 2 MiB for both ranks: one has it on its device, the other on the host
    if (!has_kernels()) return;
    run_world(2, 2, sums_of_three);
    for (int r = 0; r < 2; ++r) CHECK(cuda::Gpu::at(r).given() == 0);
  }
  TEST_CASE("a fusion buffer on the host") {  // 1 MiB
    cuda::Gpu& gpu = cuda::Gpu::at(0);
    const cuda::CurrentContext current(gpu.driver(), gpu.context());
    nccl::FusionBuffer buffer(gpu);
    CHECK(buffer.of(1 << 19, nullptr, true) != 0);
    CHECK(!buffer.on_host());
    CHECK(buffer.of(3 << 20, nullptr, true) != 0);
    CHECK(buffer.on_host());
    nccl::FusionBuffer other(gpu);
    CHECK_THROWS_AS(other.of(3 << 20, nullptr, false), Error);
    CHECK(other.of(1 << 19, nullptr, false) != 0);
  }
  TEST_CASE("a split fails") {
    expect_failure(2, 1, HVD_UNAVAILABLE, "ncclCommSplit: internal error (said by the fake )", with_streams(2));
  }
  TEST_CASE("a split fails later") {
    run_world(2, 2, [](Rank& rank) {
      GpuRank gpu(rank);
      std::string text;
      float x = 0;
      EXPECT(sum(rank, gpu, "fine", &text, &x) == HVD_OK);
      EXPECT(x == 2);
      try {
        rank.engine().add_set({1});
        EXPECT(false);
      } catch (const Error& e) {
        EXPECT(e.code == Code::unavailable);
        EXPECT(std::string(e.what()).find("ncclCommSplit: internal error") != std::string::npos);
      }
    });
  }
  TEST_CASE("NCCL cannot split") {
    core::Config config = with_streams(2);
    config.set("HOROVOD_HIERARCHICAL_ALLREDUCE", true);
    run_world(
        4, 2,
        [](Rank& rank) {
          GpuRank gpu(rank);
          std::string text;
          for (int i = 0; i < 3; ++i) {
            float x = 0;
            EXPECT(sum(rank, gpu, "one stream", &text, &x) == HVD_OK);
            EXPECT(x == 4);
          }
          const int set = rank.engine().add_set({0, 3});
          if (rank.rank() % 3) return;
          float x = static_cast<float>(rank.rank());
          void* t = gpu.tensor(&x, 4);
          hvd_request q = Rank::request(HVD_ALLREDUCE, "a set", {1}, t, t);
          q.set = set;
          gpu.run(q);
          EXPECT(*static_cast<float*>(t) == 3);
        },
        config);
  }
  TEST_CASE("no room for another communicator") {  // one multiprocessor
    run_world(2, 2, [](Rank& rank) {
      GpuRank gpu(rank);
      std::string text;
      float x = 0;
      EXPECT(sum(rank, gpu, "the world's", &text, &x) == HVD_OK);
      const int set = rank.engine().add_set({1});
      if (rank.rank() == 0) return;
      void* t = gpu.tensor(&x, 4);
      hvd_request q = Rank::request(HVD_ALLREDUCE, "through host memory", {1}, t, t);
      q.set = set;
      gpu.run(q);
      EXPECT(*static_cast<float*>(t) == 2);
    });
  }
  TEST_CASE("an asynchronous error with two streams") {
    expect_failure(2, 3, HVD_PEER_LOST, "remote process exited", with_streams(2));
  }
  /// NCCL holds the thread that called it, as when a peer is lost while connections are made. The engine goes on, and
  /// the other ranks learn of it within two seconds.  The limits have an allowance for a busy machine.
  void lose_a_peer(bool returns) {
    run_world(3, 3, [returns](Rank& rank) {
      GpuRank gpu(rank);
      const int set = rank.engine().add_set({0, 1});
      std::string text;
      float x = 0;
      EXPECT(sum(rank, gpu, "fine", &text, &x) == HVD_OK);
      float one = 1;
      void* t = gpu.tensor(&one, 4, 0);
      core::Operation& op = rank.submit(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, "held", {1}, t, t)));
      EXPECT(!rank.engine().wait(op, 0.3));
      if (rank.rank() < 2) {
        EXPECT(rank.sum(set, "of another set meanwhile", &one) == HVD_OK);
        EXPECT(one == 2);
      }
      const auto begin = std::chrono::steady_clock::now();
      rank.engine().revoke("rank 2 is gone");
      EXPECT(rank.engine().wait(op, 60));
      EXPECT(op.status == HVD_PEER_LOST);
      EXPECT(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
      gpu.release(op);
      rank.shutdown();
      EXPECT(std::chrono::steady_clock::now() - begin < std::chrono::seconds(returns ? 20 : 40));
    });
  }
  TEST_CASE("NCCL holds its caller until it is aborted") {
    lose_a_peer(true);
    for (int r = 0; r < 3; ++r) CHECK(cuda::Gpu::at(r).given() == 0);
  }
  TEST_CASE("NCCL holds its caller for ever") { lose_a_peer(false); }
  TEST_CASE("no memory for a window") { expect_no_window(); }
  TEST_CASE("NCCL makes no window") { expect_no_window(); }
  TEST_CASE("NCCL has no windows") { expect_no_window(); }
  TEST_CASE("a window fails") {
    expect_failure(2, 1, HVD_UNAVAILABLE, "ncclCommWindowRegister: internal error (said by the fake )", with_windows());
  }
  TEST_CASE("the device fails") {
    expect_failure(1, 1, HVD_UNAVAILABLE, "cuStreamWaitEvent: unspecified launch failure");
  }
  TEST_CASE("two ranks on one GPU") {
    run_world(2, 2, [](Rank& rank) {
      GpuRank gpu(rank, 0);
      std::string text;
      float x = 0;
      EXPECT(sum(rank, gpu, "shared", &text, &x) == HVD_OK);
      EXPECT(x == 2);
    });
  }
}
