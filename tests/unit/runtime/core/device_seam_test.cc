/// The engine's handling of tensors on GPUs, over a fake of the device interface: no CUDA, no NCCL.
#include <chrono>
#include <thread>
#include <vector>

#include "fake_device.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

hvd_request on_gpu(hvd_request q, int ordinal = 0) {
  q.device = ordinal;
  return q;
}

}  // namespace

TEST_CASE("device seam: a sum among the GPUs") {
  FakePlatform gpus;
  Rank rank(transport::LoopbackWorld::make(1), 0, {}, gpus);
  float in[] = {1, 2, 3}, out[3] = {};
  gpus.script.finished = false;
  core::Operation& op = rank.submit(on_gpu(Rank::request(HVD_ALLREDUCE, "a", {3}, in, out)));
  REQUIRE(rank.engine().wait(op, 60));
  CHECK(op.status == HVD_OK);
  CHECK(gpus.script.submitted == 1);
  CHECK(gpus.script.staged == 0);
  CHECK(!op.arrived());
  gpus.script.finished = true;
  CHECK(op.arrived());
  op.hold(nullptr);
  CHECK(out[2] == 3);
  rank.engine().operations().release(op);
}

TEST_CASE("device seam: a result of the device's") {
  FakePlatform gpus;
  for (const bool among : {true, false}) {
    gpus.script.among_gpus = among;
    Rank each(transport::LoopbackWorld::make(1), 0, {}, gpus);
    const float in[] = {1, 2, 3, 4};
    core::Operation& op = each.submit(on_gpu(Rank::request(HVD_ALLGATHER, "a", {2, 2}, in, nullptr)));
    REQUIRE(each.engine().wait(op, 60));
    CHECK(op.result_shape == std::vector<std::int64_t>{2, 2});
    CHECK(op.received == std::vector<std::int64_t>{2});
    CHECK(op.gpu->result);
    CHECK(static_cast<const float*>(op.result)[3] == 4);
    each.engine().operations().release(op);
  }
  CHECK(gpus.script.submitted == 1);
  CHECK(gpus.script.given_back == 1);
}

TEST_CASE("device seam: through host memory") {
  FakePlatform gpus;
  gpus.script.among_gpus = false;
  run_world(
      3, 0,
      [](Rank& rank) {
        float in[] = {1, 2}, out[2] = {};
        EXPECT(rank.run(on_gpu(Rank::request(HVD_ALLREDUCE, "a", {2}, in, out))) == HVD_OK);
        EXPECT(out[1] == 6);
      },
      {}, 0, gpus);
  CHECK(gpus.script.staged == 3);
  CHECK(gpus.script.given_back == 3);
  CHECK(gpus.script.submitted == 0);
}

TEST_CASE("device seam: what is on the device fails with its set") {
  FakePlatform gpus;
  Rank rank(transport::LoopbackWorld::make(1), 0, {}, gpus);
  float x[] = {1};
  gpus.script.finished = false;
  core::Operation& op = rank.submit(on_gpu(Rank::request(HVD_ALLREDUCE, "a", {1}, x, x)));
  REQUIRE(rank.engine().wait(op, 60));
  gpus.script.broken = true;
  for (int i = 0; i < 10'000 && !op.arrived(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK_THROWS_WITH_AS(op.hold(nullptr), "rank 1 is gone", Error);
  rank.engine().operations().release(op);
}

TEST_CASE("device seam: what is refused") {
  FakePlatform gpus;
  Rank rank(transport::LoopbackWorld::make(1), 0, {}, gpus);
  float x[] = {1};
  const hvd_request q = Rank::request(HVD_ALLREDUCE, "a", {1}, x, x);
  CHECK_THROWS_WITH_AS(rank.submit(on_gpu(q, 2)), doctest::Contains("sees 2 GPUs"), Error);
  gpus.script.captured = true;
  CHECK_THROWS_WITH_AS(rank.submit(on_gpu(q)), doctest::Contains("captured into a CUDA graph"), Error);
  gpus.script.captured = false;
  CHECK(rank.run(on_gpu(q)) == HVD_OK);
  CHECK_THROWS_WITH_AS(rank.submit(on_gpu(q, 1)), doctest::Contains("have been on cuda:0"), Error);
}
