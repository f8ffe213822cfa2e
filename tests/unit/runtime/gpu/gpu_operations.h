/// @file gpu_operations.h — the operations of tests on (fake) GPUs, with checks of their results.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gpu/nccl/agreement.h"
#include "gpu_rank.h"

namespace hvd::testing {

/// Returns whether the build has our kernels, and so was made with nvcc; prints a message if not.
inline bool has_kernels() {
  const std::string& why = cuda::Gpu::at(0).no_kernels();
  if (!why.empty()) MESSAGE("left out: " << why);
  return why.empty();
}

inline std::vector<float> floats(std::size_t n, int rank, int round = 0) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank + round)) % 13);
  return v;
}

inline std::vector<float> sum_of_floats(std::size_t n, const std::vector<int>& ranks, int round = 0, float factor = 1) {
  std::vector<float> total(n);
  for (const int r : ranks) {
    const auto v = floats(n, r, round);
    for (std::size_t i = 0; i < n; ++i) total[i] += v[i] * factor;
  }
  return total;
}
inline std::vector<float> sum_of_floats(std::size_t n, int ranks, int round = 0, float factor = 1) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return sum_of_floats(n, all, round, factor);
}

inline std::vector<float> read(const void* p, std::size_t n) {
  std::vector<float> v(n);
  if (n > 0) std::memcpy(v.data(), p, n * sizeof(float));
  return v;
}

inline bool near(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::abs(a[i] - b[i]) > 1e-5f * (1 + std::abs(b[i]))) return false;
  return true;
}

/// HVD_NCCL_WINDOWS, with windows of 2 MiB.
inline core::Config with_windows(int streams = 1) {
  core::Config config;
  config.set("HVD_NCCL_WINDOWS", true).set("HOROVOD_FUSION_THRESHOLD", 1 << 20);
  config.set("HOROVOD_NUM_NCCL_STREAMS", streams);
  return config;
}

/// Runs all operations once, in every way that a batch can hold them.
inline void all_operations(Rank& rank) {
  GpuRank gpu(rank);
  const int n = rank.size(), me = rank.rank();
  for (int round = 0; round < 3; ++round) {
    std::vector<core::Operation*> ops;
    std::vector<void*> outs;
    const std::vector<std::int64_t> sizes{1, 1000, 33, 70000, 5};
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      const auto v = floats(static_cast<std::size_t>(sizes[k]), me, round);
      void* t = gpu.tensor(v.data(), v.size() * 4);
      outs.push_back(t);
      const std::string name = "sum" + std::to_string(k);
      ops.push_back(&rank.submit(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, name.c_str(), {sizes[k]}, t, t))));
    }
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      gpu.arrive(*ops[k]);
      gpu.release(*ops[k]);
      EXPECT(read(outs[k], static_cast<std::size_t>(sizes[k])) ==
             sum_of_floats(static_cast<std::size_t>(sizes[k]), n, round));
    }
    // average, scaled both ways, into another tensor
    const auto v = floats(100, me, round);
    for (auto [before, after] : {std::pair{1.0, 1.0}, {0.5, 1.0}, {0.5, 4.0}}) {
      void* out = gpu.empty(400);
      hvd_request q =
          Rank::request(HVD_ALLREDUCE, "average", {100}, gpu.tensor(v.data(), 400), out, HVD_F32, HVD_AVERAGE);
      q.prescale = before;
      q.postscale = after;
      gpu.run(q);
      EXPECT(near(read(out, 100), sum_of_floats(100, n, round, static_cast<float>(before * after / n))));
    }
    // broadcast from the last
    const auto w = floats(77, me, round);
    void* t = gpu.tensor(w.data(), 77 * 4);
    hvd_request q = Rank::request(HVD_BROADCAST, "root", {77}, t, t);
    q.root = n - 1;
    gpu.run(q);
    EXPECT(read(t, 77) == floats(77, n - 1, round));
    // allgather: rank r has r + round rows of 3
    const auto rows = static_cast<std::size_t>(me + round);
    const auto mine = floats(rows * 3, me, round);
    std::int64_t got = 0;
    const auto gathered = gpu.take<float>(Rank::request(HVD_ALLGATHER, "rows", {static_cast<std::int64_t>(rows), 3},
                                                        gpu.tensor(mine.data(), mine.size() * 4), nullptr),
                                          &got);
    std::vector<float> all;
    for (int r = 0; r < n; ++r) {
      const auto part = floats(static_cast<std::size_t>(r + round) * 3, r, round);
      all.insert(all.end(), part.begin(), part.end());
    }
    EXPECT(gathered == all);
    EXPECT(got == static_cast<std::int64_t>(all.size() / 3));
    // alltoall: r sends (r + to) % 3 rows of 2 to each
    std::vector<std::int64_t> splits, received;
    std::int64_t total = 0;
    for (int to = 0; to < n; ++to) splits.push_back((me + to) % 3), total += splits.back();
    const auto out = floats(static_cast<std::size_t>(total) * 2, me, round);
    q = Rank::request(HVD_ALLTOALL, "exchange", {total, 2}, gpu.tensor(out.data(), out.size() * 4), nullptr);
    q.splits = splits.data();
    q.num_splits = n;
    std::size_t comes = 0;
    for (int r = 0; r < n; ++r) comes += static_cast<std::size_t>((r + me) % 3) * 2 * sizeof(float);
    if (round % 2) q.out = gpu.empty(comes + 4), q.out_bytes = comes + (me % 2 ? 0 : 4);  // also too large a one
    const auto exchanged = gpu.take<float>(q, nullptr, &received);
    std::vector<float> expected;
    for (int r = 0; r < n; ++r) {
      std::size_t skip = 0, theirs = 0;
      for (int to = 0; to < n; ++to) {
        if (to < me) skip += static_cast<std::size_t>((r + to) % 3);
        theirs += static_cast<std::size_t>((r + to) % 3);
      }
      const auto part = floats(theirs * 2, r, round);
      const auto count = static_cast<std::size_t>((r + me) % 3) * 2;
      EXPECT(received[static_cast<std::size_t>(r)] == (r + me) % 3);
      expected.insert(expected.end(), part.begin() + static_cast<long>(skip) * 2,
                      part.begin() + static_cast<long>(skip * 2 + count));
    }
    EXPECT(exchanged == expected);
    // reducescatter: rows that divide, and rows that do not
    for (const int rows_of_all : {2 * n, 2 * n + 1}) {
      const auto length = static_cast<std::size_t>(rows_of_all) * 5;
      const auto x = floats(length, me, round);
      const std::string name = "part" + std::to_string(rows_of_all);
      q = Rank::request(HVD_REDUCESCATTER, name.c_str(), {rows_of_all, 5}, gpu.tensor(x.data(), length * 4), nullptr,
                        HVD_F32, HVD_SUM);
      const auto whole = sum_of_floats(length, n, round);
      const int each = rows_of_all / n, more = rows_of_all % n;
      const int begin = each * me + std::min(me, more), end = each * (me + 1) + std::min(me + 1, more);
      q.out_bytes = round % 2 ? static_cast<std::size_t>(end - begin) * 5 * sizeof(float) : 0;
      if (q.out_bytes > 0) q.out = gpu.empty(q.out_bytes);
      const auto part = gpu.take<float>(q);
      EXPECT(part == std::vector<float>(whole.begin() + begin * 5, whole.begin() + end * 5));
    }
    // operations that NCCL lacks: through host memory
    std::vector<std::int16_t> small(50, static_cast<std::int16_t>(me + 1));
    void* s = gpu.tensor(small.data(), 100);
    gpu.run(Rank::request(HVD_ALLREDUCE, "short", {50}, s, s, HVD_I16));
    EXPECT(static_cast<std::int16_t*>(s)[49] == n * (n + 1) / 2);
    std::vector<std::int32_t> counts(50, me * 3);
    s = gpu.tensor(counts.data(), 200);
    gpu.run(Rank::request(HVD_ALLREDUCE, "count", {50}, s, s, HVD_I32, HVD_AVERAGE));
    EXPECT(static_cast<std::int32_t*>(s)[49] == 3 * (n - 1) / 2);
    // a tensor on the host in between
    float one = 1;
    EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "host", {1}, &one, &one)) == HVD_OK);
    EXPECT(one == static_cast<float>(n));
  }
}

}  // namespace hvd::testing
