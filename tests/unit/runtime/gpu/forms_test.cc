/// Several streams, operations by node, and communicators that are split from the world's. No tensor waits for the
/// tensors of another stream or set.
#include <doctest/doctest.h>

#include <cstdlib>
#include <future>

#include "gpu_operations.h"

using namespace hvd;
using namespace hvd::testing;

extern "C" void fake_cuda_enqueue(void* stream, void (*work)(void* context), void* context);

namespace {

/// Blocks a stream until it is opened.
class Gate {
 public:
  explicit Gate(void* stream) {
    fake_cuda_enqueue(
        stream, [](void* gate) { static_cast<Gate*>(gate)->open_.get_future().wait(); }, this);
  }
  void open() { open_.set_value(); }

 private:
  std::promise<void> open_;
};

core::Operation& sum_of_one(Rank& rank, GpuRank& gpu, const char* name, void* t, int set = HVD_GLOBAL_SET) {
  hvd_request q = gpu.on_gpu(Rank::request(HVD_ALLREDUCE, name, {1}, t, t));
  q.set = set;
  return rank.submit(q);
}

void expect_one(GpuRank& gpu, core::Operation& op, const void* t, float x) {
  gpu.arrive(op);
  gpu.release(op);
  EXPECT(*static_cast<const float*>(t) == x);
}

}  // namespace

TEST_CASE("every operation, encrypted between nodes: NCCL makes no connection") {
  core::Config config;
  config.set("HVD_ENCRYPT_TENSORS", true);
  const int ids = fake_nccl_calls("ncclGetUniqueId"), communicators = fake_nccl_calls("ncclCommInitRankConfig");
  run_world(2, 1, all_operations, config);
  CHECK(fake_nccl_calls("ncclGetUniqueId") == ids);
  CHECK(fake_nccl_calls("ncclCommInitRankConfig") == communicators);
}

TEST_CASE("several streams, and by nodes: every operation") {
  core::Config config;
  config.set("HOROVOD_NUM_NCCL_STREAMS", 3);
  config.set("HOROVOD_HIERARCHICAL_ALLREDUCE", true).set("HOROVOD_HIERARCHICAL_ALLGATHER", true);
  const int splits = fake_nccl_calls("ncclCommSplit"), across = fake_nccl_calls("ncclReduceScatter");
  run_world(4, 2, all_operations, config);
  CHECK(fake_nccl_calls("ncclCommSplit") - splits == 4 * (3 + 2 * 3));
  CHECK(fake_nccl_calls("ncclReduceScatter") - across >= 4 * 3 * 4);  // the averages, and the plain one
  run_world(4, 4, all_operations, config);                            // one node: operations by node gain nothing
  CHECK(fake_nccl_calls("ncclCommSplit") - splits == 4 * (3 + 2 * 3) + 4 * 3);
  run_world(3, 2, all_operations, config);  // nodes of different sizes: not by nodes
  CHECK(fake_nccl_calls("ncclCommSplit") - splits == 4 * (3 + 2 * 3) + 4 * 3 + 3 * 3);
}

TEST_CASE("sums and gathers by nodes: sizes that divide and do not, alone and together, every reduction") {
  core::Config config;
  config.set("HOROVOD_HIERARCHICAL_ALLREDUCE", true).set("HOROVOD_HIERARCHICAL_ALLGATHER", true);
  run_world(
      6, 3,
      [](Rank& rank) {
        GpuRank gpu(rank);
        const int n = rank.size(), me = rank.rank();
        for (const std::int64_t size : {1, 2, 3, 4, 1000, 3000}) {
          const auto v = floats(static_cast<std::size_t>(size), me);
          std::vector<float> largest = v;
          for (int r = 0; r < n; ++r) {
            const auto w = floats(v.size(), r);
            for (std::size_t i = 0; i < v.size(); ++i) largest[i] = std::max(largest[i], w[i]);
          }
          for (const auto reduce : {HVD_SUM, HVD_AVERAGE, HVD_MAX}) {
            void* in = gpu.tensor(v.data(), v.size() * 4);
            void* out = gpu.empty(v.size() * 4);
            const std::string name = std::to_string(size) + "/" + std::to_string(reduce);
            gpu.run(Rank::request(HVD_ALLREDUCE, name.c_str(), {size}, in, out, HVD_F32, reduce));
            EXPECT(near(read(out, v.size()),
                        reduce == HVD_MAX
                            ? largest
                            : sum_of_floats(v.size(), n, 0, reduce == HVD_SUM ? 1.f : 1.f / static_cast<float>(n))));
          }
          const auto gathered =
              gpu.take<float>(Rank::request(HVD_ALLGATHER, "g", {size}, gpu.tensor(v.data(), v.size() * 4), nullptr));
          std::vector<float> all;
          for (int r = 0; r < n; ++r) {
            const auto w = floats(v.size(), r);
            all.insert(all.end(), w.begin(), w.end());
          }
          EXPECT(gathered == all);
        }
      },
      config);
}

TEST_CASE("a process set is split from the world's communicator once that is there") {
  const int splits = fake_nccl_calls("ncclCommSplit"), joins = fake_nccl_calls("ncclCommInitRankConfig");
  run_world(4, 2, [&](Rank& rank) {
    GpuRank gpu(rank);
    float one = static_cast<float>(rank.rank() + 1);
    const int early = rank.engine().add_set({0, 1});
    void* t = gpu.tensor(&one, 4);
    expect_one(gpu, sum_of_one(rank, gpu, "world", t), t, 10);
    const int backwards = rank.engine().add_set({3, 1, 0}), unused = rank.engine().add_set({0, 2});
    if (rank.rank() != 2) {
      t = gpu.tensor(&one, 4);
      expect_one(gpu, sum_of_one(rank, gpu, "late", t, backwards), t, 7);
      hvd_request q = Rank::request(HVD_BROADCAST, "from the first", {1}, t, t);
      void* b = gpu.tensor(&one, 4);
      q.in = q.out = b;
      q.set = backwards;
      gpu.run(q);
      EXPECT(*static_cast<float*>(b) == 4);  // of rank 3, which is the set's first rank
    }
    if (rank.rank() < 2) {
      t = gpu.tensor(&one, 4);
      expect_one(gpu, sum_of_one(rank, gpu, "early", t, early), t, 3);
    }
    rank.engine().remove_set(unused);
    rank.engine().remove_set(backwards);
    t = gpu.tensor(&one, 4);
    expect_one(gpu, sum_of_one(rank, gpu, "world", t), t, 10);
  });
  CHECK(fake_nccl_calls("ncclCommSplit") - splits == 2 * 4 + 4 + 5);  // and those that move each set's data
  CHECK(fake_nccl_calls("ncclCommInitRankConfig") - joins == 4 + 2);
}

TEST_CASE("a set whose tensor is late holds up no other, on the device either") {
  run_world(3, 3, [](Rank& rank) {
    GpuRank gpu(rank), late(rank);
    float one = 1;
    void* t = gpu.tensor(&one, 4);
    expect_one(gpu, sum_of_one(rank, gpu, "world", t), t, 3);
    std::vector<std::vector<int>> members{{0, 1}, {1, 2}, {0, 2}, {2, 1, 0}};
    members.pop_back();
    std::vector<int> sets;
    for (const auto& m : members) sets.push_back(rank.engine().add_set(m));
    // The first set's tensor waits at a gate on rank 1; everything else goes on, the world too.
    std::unique_ptr<Gate> gate;
    core::Operation* held = nullptr;
    void* h = nullptr;
    if (rank.rank() < 2) {
      if (rank.rank() == 1) gate = std::make_unique<Gate>(late.stream());
      h = late.tensor(&one, 4);
      held = &sum_of_one(rank, late, "held", h, sets[0]);
    }
    for (int round = 0; round < 5; ++round) {
      for (std::size_t k = 1; k < sets.size(); ++k) {
        if (std::count(members[k].begin(), members[k].end(), rank.rank()) == 0) continue;
        t = gpu.tensor(&one, 4);
        expect_one(gpu, sum_of_one(rank, gpu, "free", t, sets[k]), t, 2);
      }
      t = gpu.tensor(&one, 4);
      expect_one(gpu, sum_of_one(rank, gpu, "world", t), t, 3);
    }
    if (!held) return;
    EXPECT(rank.engine().wait(*held, 60));
    if (gate) {
      EXPECT(!held->arrived());
      gate->open();
    }
    expect_one(late, *held, h, 2);
  });
}

TEST_CASE("with two streams a late batch does not hold up the next one") {
  core::Config config;
  config.set("HOROVOD_NUM_NCCL_STREAMS", 2);
  run_world(
      2, 2,
      [](Rank& rank) {
        GpuRank gpu(rank), late(rank);
        float one = 1;
        std::unique_ptr<Gate> gate;
        if (rank.rank() == 1) gate = std::make_unique<Gate>(late.stream());
        void* h = late.tensor(&one, 4);
        core::Operation& held = sum_of_one(rank, late, "held", h);
        EXPECT(rank.engine().wait(held, 60));  // queued: its batch is complete
        void* t = gpu.tensor(&one, 4);
        expect_one(gpu, sum_of_one(rank, gpu, "free", t), t, 2);
        if (gate) {
          EXPECT(!held.arrived());
          gate->open();
        }
        expect_one(late, held, h, 2);
      },
      config);
}

TEST_CASE("sets come and go while the world's GPUs are at work") {
  run_world(3, 3, [](Rank& rank) {
    GpuRank gpu(rank);
    float one = 1;
    for (int round = 0; round < 20; ++round) {
      void* t = gpu.tensor(&one, 4);
      core::Operation& op = sum_of_one(rank, gpu, "world", t);
      const int set = rank.engine().add_set({round % 3, (round + 1) % 3});
      rank.engine().remove_set(set);  // its communicator may still be in progress
      expect_one(gpu, op, t, 3);
    }
  });
}
