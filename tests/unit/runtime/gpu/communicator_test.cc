/// Several NCCL communicators of one process: what may go on at the same time, and how all of them end.
#include "gpu/nccl/communicator.h"

#include <doctest/doctest.h>

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

/// The test is run with versions of NCCL that mix groups up which one thread begins.
TEST_CASE("communicators of one rank: two are under way at the same time") {
  cuda::Gpu& gpu = cuda::Gpu::at(0);
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  Communicator a(library(), gpu, new_id(), 0, 1, 1), b(library(), gpu, new_id(), 0, 1, 1);
  wait_for(a), wait_for(b);
  const cuda::Stream streams[] = {gpu.make_stream(), gpu.make_stream()};
  float x = 1, y = 2;
  for (int round = 0; round < 3; ++round) {
    add(a, &x, streams[0]), add(b, &y, streams[1]);
    wait_for(b), wait_for(a);
  }
  for (const cuda::Stream s : streams) cuStreamSynchronize(s);  // a split wants that
  const auto part_of_a = a.split(0, 0, 1, 1), part_of_b = b.split(0, 0, 1, 1);
  wait_for(*part_of_b), wait_for(*part_of_a);
  wait_for(a), wait_for(b);
  add(*part_of_a, &x, streams[0]), add(*part_of_b, &y, streams[1]);
  wait_for(*part_of_a), wait_for(*part_of_b);
  for (const cuda::Stream s : streams) cuStreamSynchronize(s);
  CHECK(x == 1);
  CHECK(y == 2);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (Communicator* c : {part_of_a.get(), part_of_b.get(), &a, &b}) {
    c->abort();
    CHECK(c->ended(end));
  }
}

TEST_CASE("communicators whose kernels wait for a peer that is lost: the end of one needs that of the others") {
  constexpr int count = 3;
  std::vector<nccl::UniqueId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(new_id());
  auto join = [&](int rank, cuda::Gpu& gpu) {
    std::vector<std::unique_ptr<Communicator>> all;
    for (const nccl::UniqueId& id : ids) all.push_back(std::make_unique<Communicator>(library(), gpu, id, rank, 2, 1));
    for (const auto& c : all) wait_for(*c);
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
  for (std::size_t i = 0; i < count; ++i) add(*all[i], &x[i], gpu.make_stream());
  for (const auto& c : all) wait_for(*c);
  end(all);
}
