/// The events for which a batch waits on the device: all writers of its tensors, by few calls of the driver.
#include <doctest/doctest.h>

#include <string>

#include "gpu_operations.h"

extern "C" void fake_cuda_replace_stream(void* stream);

using namespace hvd;
using namespace hvd::testing;

namespace {

/// A tensor whose data is complete `delay_us` after its submission, in the order of `stream`.
struct Late {
  std::string name;
  void* stream;
  int delay_us;
};

void sum_group(Rank& rank, GpuRank& gpu, const std::vector<Late>& tensors, int round) {
  std::vector<hvd_request> requests;
  std::vector<void*> memory;
  std::vector<core::Operation*> ops(tensors.size());
  for (const Late& l : tensors) {
    memory.push_back(gpu.empty(400));
    requests.push_back(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, l.name.c_str(), {100}, memory.back(), memory.back())));
    requests.back().stream = l.stream;
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto v = floats(100, rank.rank(), round);
    fake_cuda_copy_later(memory[i], v.data(), 400, tensors[i].stream, tensors[i].delay_us);
  }
  ops = rank.submit_group(requests);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    gpu.arrive(*ops[i]);
    gpu.release(*ops[i]);
    EXPECT(read(memory[i], 100) == sum_of_floats(100, rank.size(), round));
  }
}

}  // namespace

TEST_CASE("tensors of a batch that come from several streams are waited for on each, to the last") {
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    GpuRank other(rank);  // for its stream
    void *a = gpu.stream(), *b = other.stream();
    for (int round = 0; round < 4; ++round) {  // from the second on the names are known
      sum_group(rank, gpu, {{"1", a, 0}, {"2", b, 0}, {"3", a, 20000}, {"4", b, 0}}, round);
      sum_group(rank, gpu, {{"5", a, 0}, {"6", b, 20000}, {"7", a, 0}}, round);
      sum_group(rank, gpu, {{"8", a, 20000}, {"9", b, 0}}, round);
    }
  });
}

/// Rank 0 submits one tensor after the other, so each has a mark of its own. Rank 1 submits all at once and later, so
/// they are one batch.
TEST_CASE("tensors of a batch that were submitted one by one on one stream are waited for, to the last") {
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    const std::string names[] = {"a", "b", "c", "d"};
    for (int round = 0; round < 4; ++round) {
      const auto v = floats(100, rank.rank(), round);
      std::vector<hvd_request> requests;
      std::vector<core::Operation*> ops(std::size(names));
      auto sync = [&] {
        float one = 1;
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "sync", {1}, &one, &one)) == HVD_OK);
      };
      if (rank.rank() == 1) sync();
      for (std::size_t i = 0; i < std::size(names); ++i) {
        // The last one of the batch may be any tensor: the coordinator's order is not that of submission.
        const bool late = i == static_cast<std::size_t>(round) || i + 1 == std::size(names);
        void* t = gpu.tensor(v.data(), 400, late ? 10000 : 0);
        requests.push_back(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, names[i].c_str(), {100}, t, t)));
        if (rank.rank() == 0) ops[i] = &rank.submit(requests.back());
      }
      if (rank.rank() == 0)
        sync();
      else
        ops = rank.submit_many(requests);
      for (std::size_t i = 0; i < std::size(names); ++i) {
        gpu.arrive(*ops[i]);
        gpu.release(*ops[i]);
        EXPECT(read(requests[i].out, 100) == sum_of_floats(100, 2, round));
      }
    }
  });
}

TEST_CASE("a stream's handle comes back as another stream's between two submissions: both are waited for") {
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    for (int round = 0; round < 3; ++round) {
      const auto v = floats(100, rank.rank(), round);
      std::vector<core::Operation*> ops(2);
      std::vector<hvd_request> requests;
      auto sync = [&] {
        float one = 1;
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "sync", {1}, &one, &one)) == HVD_OK);
      };
      if (rank.rank() == 1) sync();
      for (const int i : {0, 1}) {
        void* t = gpu.tensor(v.data(), 400, i == 0 ? 20000 : 0);
        requests.push_back(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, i == 0 ? "a" : "b", {100}, t, t)));
        if (rank.rank() == 1) continue;
        ops[static_cast<std::size_t>(i)] = &rank.submit(requests.back());
        if (i == 0) fake_cuda_replace_stream(gpu.stream());
      }
      if (rank.rank() == 0)
        sync();
      else
        ops = rank.submit_many(requests);
      for (core::Operation* op : ops) gpu.arrive(*op);
      for (const hvd_request& q : requests) EXPECT(read(q.out, 100) == sum_of_floats(100, 2, round));
      for (core::Operation* op : ops) gpu.release(*op);
    }
  });
}

TEST_CASE("a name that is known moves between streams, and to the host and back") {
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    GpuRank other(rank);
    for (int round = 0; round < 6; ++round) {
      const auto v = floats(50, rank.rank(), round);
      GpuRank& from = round % 2 ? other : gpu;
      void* t = from.tensor(v.data(), 200, 3000);
      from.run(Rank::request(HVD_ALLREDUCE, "gradient", {50}, t, t));
      EXPECT(read(t, 50) == sum_of_floats(50, 2, round));
      if (round % 3 != 2) continue;
      auto on_host = v;
      EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "gradient", {50}, on_host.data(), on_host.data())) == HVD_OK);
      EXPECT(on_host == sum_of_floats(50, 2, round));
    }
  });
}
