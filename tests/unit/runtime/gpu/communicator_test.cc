/// Several NCCL communicators of one process: which calls may overlap, and how all of them end.
#include "gpu/nccl/communicator/communicator.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "gpu_rank.h"

using namespace hvd;
using namespace hvd::testing;
using nccl::Communicator;

namespace {

const nccl::Library& library() { return *nccl::Library::get(); }

void wait_for(Communicator& c) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!c.ready()) {
    REQUIRE(std::chrono::steady_clock::now() < limit);
    std::this_thread::yield();
  }
}

void add(Communicator& c, float* t, cuda::Stream stream) {
  c.group([&] {
    c.check(library().all_reduce(t, t, 1, nccl::type_of(DType::f32), nccl::sum, c.comm(), stream), "ncclAllReduce");
  });
}

nccl::UniqueId new_id() {
  nccl::UniqueId id{};
  REQUIRE(library().get_unique_id(&id) == nccl::success);
  return id;
}

}  // namespace

/// The test runs with versions of NCCL that confuse groups of one thread: so each communicator has a thread.
TEST_CASE("communicators of one rank: two are under way at the same time") {
  cuda::Gpu& gpu = cuda::Gpu::at(0);
  auto use = [&gpu](const nccl::UniqueId& id, float x) {
    const cuda::CurrentContext current(gpu.driver(), gpu.context());
    const cuda::Stream stream = gpu.make_stream();
    Communicator c(library(), gpu, id, 0, 1, 1);
    wait_for(c);
    float y = x;
    for (int round = 0; round < 3; ++round) add(c, &y, stream), wait_for(c);
    cuStreamSynchronize(stream);  // a split requires that
    for (const bool blocking : {false, true}) {
      const auto part = c.split(0, {0, 1, 1, blocking});
      wait_for(*part), wait_for(c);
      for (int round = 0; round < 3; ++round) {
        add(*part, &y, stream);
        if (!blocking) wait_for(*part);
      }
      cuStreamSynchronize(stream);
      CHECK(y == x);
      part->abort();
      CHECK(part->ended(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
    }
    c.abort();
    CHECK(c.ended(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  };
  const nccl::UniqueId ids[] = {new_id(), new_id()};
  std::thread other([&] { use(ids[1], 2); });
  use(ids[0], 1);
  other.join();
}

/// A separate factor for each batch, like a program that predivides by a number that changes.
TEST_CASE("communicators keep few of the sums that factors were made for") {
  cuda::Gpu& gpu = cuda::Gpu::at(0);
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  Communicator c(library(), gpu, new_id(), 0, 1, 1);
  wait_for(c);
  const int made = fake_nccl_calls("ncclRedOpCreatePreMulSum"), destroyed = fake_nccl_calls("ncclRedOpDestroy");
  const auto live = [&] {
    return fake_nccl_calls("ncclRedOpCreatePreMulSum") - made - fake_nccl_calls("ncclRedOpDestroy") + destroyed;
  };
  const nccl::RedOp often = c.premultiplied(DType::f32, 0.25);
  for (int batch = 0; batch < 50; ++batch) {
    c.forget_factors();
    CHECK(live() <= 8);
    CHECK(c.premultiplied(DType::f32, 0.25) == often);
    c.premultiplied(DType::f32, 1.5 + batch);
  }
  c.forget_factors();
  for (int i = 0; i < 20; ++i) c.premultiplied(DType::f32, 100 + i);  // of one batch: all of them are needed
  CHECK(live() >= 20);
  c.forget_factors();
  CHECK(live() <= 8);
}

TEST_CASE("communicators whose kernels wait for a peer that is lost: the end of one needs that of the others") {
  constexpr int count = 3;
  std::vector<nccl::UniqueId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(new_id());
  auto join = [&](int rank, cuda::Gpu& gpu) {
    std::vector<std::unique_ptr<Communicator>> all;
    for (const nccl::UniqueId& id : ids) {
      all.push_back(std::make_unique<Communicator>(library(), gpu, id, rank, 2, 1));
      wait_for(*all.back());
    }
    return all;
  };
  auto end = [](std::vector<std::unique_ptr<Communicator>>& all) {
    for (const auto& c : all) c->abort();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (const auto& c : all) CHECK(c->ended(limit));
  };
  std::thread lost([&] {
    cuda::Gpu& gpu = cuda::Gpu::at(1);
    const cuda::CurrentContext current(gpu.driver(), gpu.context());
    auto all = join(1, gpu);
    end(all);
  });
  cuda::Gpu& gpu = cuda::Gpu::at(0);
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  auto all = join(0, gpu);
  lost.join();
  float x[count] = {};
  for (std::size_t i = 0; i < count; ++i) add(*all[i], &x[i], gpu.make_stream()), wait_for(*all[i]);
  end(all);
}

#if !defined(__SANITIZE_THREAD__)  // the thread sanitizer allows a forked child no threads
TEST_CASE("exit() waits for communicators that are being ended") {
  static nccl::Library slow;
  static int told[2];
  REQUIRE(pipe(told) == 0);
  slow.abort = [](nccl::Comm) {
    usleep(300'000);
    return write(told[1], "x", 1) == 1 ? 0 : 1;
  };
  const pid_t child = fork();
  if (child == 0) {
    const nccl::CommunicatorAbort ending(slow, nullptr, nullptr);
    exit(7);
  }
  close(told[1]);
  char byte = 0;
  CHECK(read(told[0], &byte, 1) == 1);
  close(told[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}
#endif
