/// The pure parts of the NCCL backend: the choice of tensors to fuse, the scaling of sums, the ranks' decisions.
#include <doctest/doctest.h>

#include <cstdio>

#include "gpu/nccl/agreement.h"
#include "gpu/nccl/launch/launch.h"

using namespace hvd;
using namespace hvd::nccl;

namespace {

DeviceTensor sum_of(std::size_t elements, DType dtype = DType::f32, Reduce reduce = Reduce::sum) {
  DeviceTensor t;
  t.dtype = dtype;
  t.reduce = reduce;
  t.row_bytes = elements * element_bytes(dtype);
  return t;
}

DeviceInfo card(int host, const char* uuid, int version = 23007) {
  DeviceInfo c;
  c.version = version;
  c.kernels = c.splits = 1;
  c.blocks = 66;
  c.host = static_cast<std::uint64_t>(host);
  std::snprintf(c.uuid, sizeof c.uuid, "%s", uuid);
  return c;
}

const Capabilities all{true, false}, none{false, false};

}  // namespace

TEST_CASE("small sums of one type share a call, large ones and lone ones go as they are") {
  std::size_t bytes = 0;
  std::vector<DeviceTensor> tensors{sum_of(100), sum_of(3 << 20), sum_of(7), sum_of(5, DType::f64), sum_of(0)};
  auto fused = fuse(tensors, 4, all, &bytes);
  REQUIRE(fused.size() == 1);
  CHECK(fused[0].tensors == std::vector<std::size_t>{0, 2});
  CHECK(fused[0].at == std::vector<std::size_t>{0, 512});
  CHECK(bytes == 640);
  tensors = {sum_of(10), sum_of(10, DType::f32, Reduce::max), sum_of(10), sum_of(10, DType::f32, Reduce::max)};
  tensors[2].before = 2;
  CHECK(fuse(tensors, 4, all, &bytes).size() == 1);  // a separate factor prevents fusion
}

TEST_CASE("sums of f16 in f32 take twice the room") {
  std::size_t bytes = 0;
  const auto fused = fuse({sum_of(64, DType::bf16)}, 2, {true, true}, &bytes);
  REQUIRE(fused.size() == 1);
  CHECK(fused[0].wide);
  CHECK(bytes == 256);
}

TEST_CASE("where the factors are applied") {
  DeviceTensor t = sum_of(8, DType::f32, Reduce::average);
  CHECK(scaling_of(t, 4, all, true).gather == 0.25);
  CHECK(scaling_of(t, 4, all, false).inside == 0.25);
  CHECK(scaling_of(t, 4, none, true).inside == 0.25);
  t = sum_of(8, DType::bf16, Reduce::average);
  CHECK(scaling_of(t, 4, all, false).inside == 0.25);
  CHECK(scaling_of(t, 3, all, false).gather == doctest::Approx(1. / 3));  // 1/3 is not exact in bf16
  t.before = 0.5;
  CHECK(scaling_of(t, 4, all, false).gather == 0.5);
  CHECK(scaling_of(t, 4, all, false).scatter == 0.25);
  t = sum_of(8, DType::f32, Reduce::max);
  t.before = 2;
  CHECK(scaling_of(t, 4, all, true).gather == 2);
}

TEST_CASE("what NCCL cannot do goes through host memory") {
  CHECK(possible(sum_of(8), 4, none));
  CHECK(possible(sum_of(8, DType::i64), 4, none));
  CHECK_FALSE(possible(sum_of(8, DType::i64, Reduce::average), 4, all));
  CHECK_FALSE(possible(sum_of(8, DType::i16), 4, all));
  CHECK((possible(sum_of(8, DType::u32), 4, none) && possible(sum_of(8, DType::u64, Reduce::max), 4, none)));
  CHECK(possible(sum_of(8, part_type(DType::c64), Reduce::average), 4, none));
  CHECK_FALSE(possible(sum_of(8, DType::c128, Reduce::product), 4, all));
  CHECK_FALSE(possible(sum_of(8, DType::boolean), 4, all));
  CHECK_FALSE(possible(sum_of(8, DType::f32, Reduce::adasum), 4, all));
  DeviceTensor t = sum_of(8);
  t.before = t.after = 0.5;
  CHECK(possible(t, 4, all));
  CHECK_FALSE(possible(t, 4, none));
  t.kind = Kind::reducescatter;
  CHECK_FALSE(possible(t, 4, all));
  t = sum_of(8, DType::boolean);
  t.kind = Kind::broadcast;
  CHECK(possible(t, 4, none));
}

TEST_CASE("encrypted tensors leave their host through host memory only") {
  const std::vector<int> ranks{0, 1};
  std::vector<DeviceInfo> cards{card(1, "GPU-a"), card(2, "GPU-b")};
  for (DeviceInfo& c : cards) c.encrypts = 1;
  const GpuDecision two_nodes = decide(cards, ranks, std::vector<std::size_t>{1, 1});
  CHECK_FALSE(two_nodes.nccl);
  CHECK(two_nodes.through_host == gpu_kinds);
  CHECK(two_nodes.reason == "NCCL would carry them between hosts in clear (--encrypt-tensors)");
  cards[1] = card(1, "GPU-b");
  cards[1].encrypts = 1;
  CHECK(decide(cards, ranks, std::vector<std::size_t>{2}).nccl);
}

TEST_CASE("what the ranks decide") {
  const std::vector<int> ranks{4, 5, 6};
  const std::vector<std::size_t> nodes{2, 1};
  std::vector<DeviceInfo> cards{card(1, "GPU-a"), card(1, "GPU-b"), card(2, "GPU-a")};
  CHECK(decide(cards, ranks, nodes).nccl);
  CHECK(decide(cards, ranks, nodes).capabilities.kernels);
  cards[1].kernels = 0;
  CHECK_FALSE(decide(cards, ranks, nodes).capabilities.kernels);
  cards[1] = card(1, "GPU-a");
  CHECK(decide(cards, ranks, nodes).reason.find("rank 4 and rank 5 use one GPU, GPU-a") == 0);
  cards[0].shares_gpu = cards[1].shares_gpu = 1;
  CHECK(decide(cards, ranks, nodes).nccl);
  cards[0].version = cards[1].version = cards[2].version = 22900;
  CHECK_FALSE(decide(cards, ranks, nodes).nccl);
  cards = {card(1, "GPU-a"), card(1, "GPU-b", 22100), card(2, "GPU-a")};
  CHECK(decide(cards, ranks, nodes).reason == "NCCL is 2.30.7 on rank 4 and 2.21.0 on rank 5");
  cards[1] = card(1, "GPU-b", 0);
  std::snprintf(cards[1].why, sizeof cards[1].why, "no NCCL: not there");
  CHECK(decide(cards, ranks, nodes).reason == "rank 5: no NCCL: not there");
  cards[2].through_host = gpu_kinds;
  CHECK_FALSE(decide(cards, ranks, nodes).nccl);
  CHECK(decide(cards, ranks, nodes).reason.empty());
}

TEST_CASE("kinds that one rank wants through host memory go there on all") {
  const std::vector<int> ranks{0, 1};
  const std::vector<std::size_t> nodes{2};
  std::vector<DeviceInfo> cards{card(1, "GPU-a"), card(1, "GPU-b")};
  CHECK(decide(cards, ranks, nodes).through_host == 0);
  cards[1].through_host = bit_of(Kind::broadcast);
  CHECK(decide(cards, ranks, nodes).nccl);
  CHECK(decide(cards, ranks, nodes).through_host == bit_of(Kind::broadcast));
  cards[0].through_host = gpu_kinds & ~bit_of(Kind::broadcast);  // all kinds: NCCL is not needed
  CHECK_FALSE(decide(cards, ranks, nodes).nccl);
  CHECK(decide(cards, ranks, nodes).reason.empty());
}

TEST_CASE("slots and forms by node: what all ranks ask for, as far as it can be had") {
  const std::vector<int> ranks{0, 1, 2, 3};
  const std::vector<std::size_t> nodes{2, 2};
  std::vector<DeviceInfo> cards{card(1, "GPU-a"), card(1, "GPU-b"), card(2, "GPU-a"), card(2, "GPU-b")};
  for (DeviceInfo& c : cards) c.slots = 4, c.sums_by_nodes = c.gathers_by_nodes = 1;
  GpuDecision d = decide(cards, ranks, nodes);
  CHECK(d.nccl);
  CHECK(d.slots == 4);
  CHECK(d.blocks == 16);
  CHECK(d.sums_by_nodes);
  CHECK(d.gathers_by_nodes);
  CHECK(d.notes.empty());
  CHECK_FALSE(d.inherits);

  cards[2].gathers_by_nodes = 0;
  cards[1].slots = 2;
  d = decide(cards, ranks, nodes);
  CHECK_FALSE(d.gathers_by_nodes);
  CHECK(d.slots == 2);

  d = decide(cards, ranks, std::vector<std::size_t>{3, 1});
  CHECK_FALSE(d.sums_by_nodes);
  REQUIRE(d.notes.size() == 1);
  CHECK(d.notes[0] == "NCCL's operations are not made node by node: nodes have 3 and 1 ranks");
  for (const auto& flat : {std::vector<std::size_t>{4}, std::vector<std::size_t>{1, 1, 1, 1}}) {  // one level is all
    d = decide(cards, ranks, flat);
    CHECK_FALSE(d.sums_by_nodes);
    CHECK(d.notes.empty());
  }

  cards[3].splits = 0;
  d = decide(cards, ranks, nodes);
  CHECK(d.slots == 1);
  CHECK_FALSE(d.sums_by_nodes);
  REQUIRE(d.notes.size() == 2);
  CHECK(d.notes[0] == "NCCL uses one stream: NCCL has no ncclCommSplit");
  CHECK(d.notes[1] == "NCCL's operations are not made node by node: NCCL has no ncclCommSplit");

  cards[3].splits = 1;
  cards[2].blocks = 1;
  d = decide(cards, ranks, nodes);
  CHECK(d.slots == 1);
  CHECK(d.blocks == 1);
  CHECK(d.notes[0] == "NCCL uses 1 of 2 streams: the GPU of rank 2 has no room for more");
  cards[2].blocks = 0;
  d = decide(cards, ranks, nodes);
  CHECK_FALSE(d.nccl);
  CHECK(d.reason == "the GPU of rank 2 has no room for one more communicator of NCCL");
}

TEST_CASE("what a sum by nodes shares divides by the node's ranks") {
  std::size_t bytes = 0;
  const auto fused = fuse({sum_of(100), sum_of(7)}, 6, all, &bytes, 3);
  REQUIRE(fused.size() == 1);
  CHECK(fused[0].bytes == 768);
  CHECK(bytes == 768);
}

TEST_CASE("windows need memory on all ranks, and have the size of the smallest") {
  std::vector<DeviceInfo> cards{card(1, "a"), card(1, "b"), card(1, "c")};
  const std::vector<int> ranks{4, 5, 6};
  const std::vector<std::size_t> nodes{3};
  CHECK(decide(cards, ranks, nodes).window_bytes == 0);
  CHECK(decide(cards, ranks, nodes).notes.empty());
  for (DeviceInfo& c : cards) c.window_bytes = 4 << 20;
  cards[1].window_bytes = 2 << 20;
  CHECK(decide(cards, ranks, nodes).window_bytes == 2 << 20);
  cards[1].window_bytes = 0;
  const GpuDecision d = decide(cards, ranks, nodes);
  CHECK(d.nccl);
  CHECK(d.window_bytes == 0);
  REQUIRE(d.notes.size() == 1);
  CHECK(d.notes[0].find("rank 5 has no memory for a window") != std::string::npos);
  cards[1].window_bytes = -7;
  CHECK(sound(cards[1]).window_bytes == 0);
}
