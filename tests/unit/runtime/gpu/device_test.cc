/// Tensors on (fake) GPUs under the real runtime, ranks as threads.
#include <doctest/doctest.h>

#include <cstdlib>
#include <random>

#include "gpu_rank.h"
#include "ops/nccl/library.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

std::vector<float> floats(std::size_t n, int rank, int round = 0) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank + round)) % 13);
  return v;
}

std::vector<float> sum_of_floats(std::size_t n, int ranks, int round = 0, float factor = 1) {
  std::vector<float> total(n);
  for (int r = 0; r < ranks; ++r) {
    const auto v = floats(n, r, round);
    for (std::size_t i = 0; i < n; ++i) total[i] += v[i] * factor;
  }
  return total;
}

std::vector<float> read(const void* p, std::size_t n) {
  std::vector<float> v(n);
  std::memcpy(v.data(), p, n * sizeof(float));
  return v;
}

bool near(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::abs(a[i] - b[i]) > 1e-5f * (1 + std::abs(b[i]))) return false;
  return true;
}

/// All operations once, in every way that a batch can hold them.
void all_operations(Rank& rank) {
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
      const auto part = gpu.take<float>(Rank::request(HVD_REDUCESCATTER, name.c_str(), {rows_of_all, 5},
                                                      gpu.tensor(x.data(), length * 4), nullptr, HVD_F32, HVD_SUM));
      const auto whole = sum_of_floats(length, n, round);
      const int each = rows_of_all / n, more = rows_of_all % n;
      const int begin = each * me + std::min(me, more), end = each * (me + 1) + std::min(me + 1, more);
      EXPECT(part == std::vector<float>(whole.begin() + begin * 5, whole.begin() + end * 5));
    }
    // what NCCL cannot do: through host memory
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

}  // namespace

TEST_CASE("every operation, through NCCL") {
  for (int ranks : {1, 2, 4}) run_world(ranks, ranks, all_operations);
}

/// The runtime's own hook is set before the first tensor on a GPU, so it runs after what was made later is destroyed.
/// (A sanitizer says so if the driver's table was.)
[[maybe_unused]] const bool asks_at_exit = [] {
  return std::atexit([] {
           if (const cuda::Driver* driver = cuda::Driver::get()) driver->text(2);
           if (const nccl::Library* library = nccl::Library::get()) library->text(2, nullptr);
         }) == 0;
}();

TEST_CASE("every operation, on several nodes") { run_world(4, 2, all_operations); }

TEST_CASE("every operation, through host memory") {
  core::Config config;
  config.gpu_through_host = true;
  for (int ranks : {1, 3}) run_world(ranks, ranks, all_operations, config);
  run_world(4, 2, all_operations, config);
}

TEST_CASE("sums of 16-bit floats, also in f32") {
  for (const bool wide : {false, true}) {
    core::Config config;
    config.nccl_wide = wide;
    run_world(
        3, 3,
        [](Rank& rank) {
          GpuRank gpu(rank);
          for (hvd_dtype dtype : {HVD_F16, HVD_BF16}) {
            std::vector<std::uint16_t> v(300);
            for (std::size_t i = 0; i < v.size(); ++i) {
              const auto x = static_cast<float>(i % 50) + static_cast<float>(rank.rank());
              cuda::f16 h;
              cuda::bf16 b;
              cuda::narrow(x, h), cuda::narrow(x, b);
              v[i] = dtype == HVD_F16 ? h.bits : b.bits;
            }
            void* t = gpu.tensor(v.data(), 600);
            const std::string name = "half" + std::to_string(dtype);
            gpu.run(Rank::request(HVD_ALLREDUCE, name.c_str(), {300}, t, t, dtype, HVD_AVERAGE));
            for (std::size_t i = 0; i < v.size(); ++i) {
              const auto bits = static_cast<std::uint16_t*>(t)[i];
              const float y = dtype == HVD_F16 ? cuda::wide(cuda::f16{bits}) : cuda::wide(cuda::bf16{bits});
              EXPECT(std::abs(y - (static_cast<float>(i % 50) + 1)) <= 0.02f * (1 + y));
            }
          }
        },
        config);
  }
}

TEST_CASE("CPU here and GPU there is a disagreement with a name, and the next operation works") {
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    const auto v = floats(8, rank.rank());
    void* t = gpu.tensor(v.data(), 32, 0);
    cuStreamSynchronize(gpu.stream());
    hvd_request q = Rank::request(HVD_ALLREDUCE, "where", {8}, t, t);
    if (rank.rank() == 1) q = gpu.on_gpu(q);
    std::string text;
    EXPECT(rank.try_run(q, &text, 60) == HVD_MISMATCH);
    EXPECT(text.find("ranks disagree on device: cpu on rank 0, cuda on rank 1") != std::string::npos);
    gpu.run(Rank::request(HVD_ALLREDUCE, "where", {8}, t, t));
    EXPECT(read(t, 8) == sum_of_floats(8, 2));
  });
}

TEST_CASE("one GPU for each rank") {
  run_world(1, 1, [](Rank& rank) {
    GpuRank first(rank, 0), second(rank, 1);
    float one = 1;
    first.run(Rank::request(HVD_ALLREDUCE, "a", {1}, &one, &one));
    std::string text;
    EXPECT(rank.try_run(second.on_gpu(Rank::request(HVD_ALLREDUCE, "b", {1}, &one, &one)), &text, 60) == HVD_USAGE);
    EXPECT(text.find("cuda:1") == 0);
    hvd_request q = Rank::request(HVD_ALLREDUCE, "c", {1}, &one, &one);
    q.device = 99;
    EXPECT(rank.try_run(q, &text, 60) == HVD_USAGE);
    EXPECT(text.find("this process sees 8 GPUs") != std::string::npos);
  });
}

TEST_CASE("a group runs together; process sets have communicators of their own") {
  run_world(4, 4, [](Rank& rank) {
    GpuRank gpu(rank);
    const int even = rank.engine().add_set({0, 2}), odd = rank.engine().add_set({1, 3});
    for (int round = 0; round < 5; ++round) {
      float x = static_cast<float>(rank.rank() + 1), y = x;
      void* a = gpu.tensor(&x, 4);
      void* b = gpu.tensor(&y, 4);
      hvd_request q = Rank::request(HVD_ALLREDUCE, "mine", {1}, a, a);
      q.set = rank.rank() % 2 ? odd : even;
      core::Operation& op = rank.submit(gpu.on_gpu(q));
      gpu.run(Rank::request(HVD_ALLREDUCE, "all", {1}, b, b));
      gpu.arrive(op);
      gpu.release(op);
      EXPECT(*static_cast<float*>(a) == (rank.rank() % 2 ? 6.f : 4.f));
      EXPECT(*static_cast<float*>(b) == 10.f);
    }
    std::vector<void*> tensors;
    std::vector<hvd_request> qs;
    for (int i = 0; i < 20; ++i) {
      const auto v = floats(100, rank.rank(), i);
      tensors.push_back(gpu.tensor(v.data(), 400));
      static thread_local std::deque<std::string> names;
      names.push_back("g" + std::to_string(i));
      qs.push_back(
          gpu.on_gpu(Rank::request(HVD_ALLREDUCE, names.back().c_str(), {100}, tensors.back(), tensors.back())));
    }
    const auto ops = rank.submit_group(qs);
    for (int i = 0; i < 20; ++i) {
      gpu.arrive(*ops[static_cast<std::size_t>(i)]);
      gpu.release(*ops[static_cast<std::size_t>(i)]);
      EXPECT(read(tensors[static_cast<std::size_t>(i)], 100) == sum_of_floats(100, 4, i));
    }
  });
}

TEST_CASE("a rank that has joined stands in with zeros on its GPU") {
  for (const bool host : {false, true}) {
    core::Config config;
    config.gpu_through_host = host;
    run_world(
        3, 3,
        [](Rank& rank) {
          GpuRank gpu(rank);
          if (rank.rank() == 0) {
            EXPECT(rank.run(Rank::request(HVD_JOIN, nullptr, {}, nullptr, nullptr)) == HVD_OK);
            return;
          }
          for (int i = 0; i < 4; ++i) {
            const auto v = floats(500, rank.rank(), i);
            void* t = gpu.tensor(v.data(), 2000);
            gpu.run(Rank::request(HVD_ALLREDUCE, "last", {500}, t, t));
            auto sum = floats(500, 1, i);
            const auto other = floats(500, 2, i);
            for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += other[k];
            EXPECT(read(t, 500) == sum);
            const auto g = gpu.take<float>(Rank::request(HVD_ALLGATHER, "rest", {1}, gpu.tensor(v.data(), 4), nullptr));
            EXPECT(g.size() == 2);
          }
          EXPECT(rank.run(Rank::request(HVD_JOIN, nullptr, {}, nullptr, nullptr)) == HVD_OK);
        },
        config);
  }
}

TEST_CASE("random operations, in every mixture") {
  const char* wanted = std::getenv("HVD_RANDOM_CASES");
  const int cases = wanted ? std::atoi(wanted) : 200 / slower;
  const char* given = std::getenv("HVD_RANDOM_SEED");
  const unsigned seed = given ? static_cast<unsigned>(std::atoi(given)) : 20;
  INFO("HVD_RANDOM_SEED=" << seed << " HVD_RANDOM_CASES=" << cases);
  const int per_world = 25;
  for (int done = 0; done < cases; done += per_world) {
    const unsigned world_seed = seed + static_cast<unsigned>(done);
    const int ranks = 1 + static_cast<int>(world_seed % 4);
    core::Config config;
    config.gpu_through_host = world_seed % 5 == 4;
    config.fusion_bytes = world_seed % 3 == 0 ? 4096 : 128 << 20;
    run_world(
        ranks, ranks > 2 && world_seed % 2 ? 2 : ranks,
        [&](Rank& rank) {
          GpuRank gpu(rank);
          std::mt19937 same(world_seed);  // equal on all ranks
          struct One {
            core::Operation* op;
            std::string name;
            void* out;
            std::size_t n;
            int round;
            int root;  ///< -1: a sum
          };
          std::vector<One> under_way;
          auto finish = [&] {
            for (One& o : under_way) {
              gpu.arrive(*o.op);
              gpu.release(*o.op);
              EXPECT(read(o.out, o.n) ==
                     (o.root >= 0 ? floats(o.n, o.root, o.round) : sum_of_floats(o.n, rank.size(), o.round)));
            }
            under_way.clear();
          };
          for (int c = 0; c < per_world; ++c) {
            const auto n = static_cast<std::size_t>(same() % 6 == 0 ? same() % 60000 : same() % 300);
            const bool moves = same() % 4 == 0, host = same() % 5 == 0;
            const int root = moves ? static_cast<int>(same() % static_cast<unsigned>(rank.size())) : -1;
            const auto v = floats(n, rank.rank(), c);
            void* t = gpu.tensor(v.data(), n * 4, static_cast<int>(same() % 400));
            const std::string name = (host ? "h" : "g") + std::to_string(c % 10) + (moves ? "b" : "s");
            bool busy = false;
            for (const One& o : under_way) busy |= o.name == name;
            if (busy || same() % 6 == 0) finish();
            if (host) cuStreamSynchronize(gpu.stream());
            hvd_request q = Rank::request(moves ? HVD_BROADCAST : HVD_ALLREDUCE, name.c_str(),
                                          {static_cast<std::int64_t>(n)}, t, t);
            q.root = std::max(root, 0);
            under_way.push_back({&rank.submit(host ? q : gpu.on_gpu(q)), name, t, n, c, root});
          }
          finish();
        },
        config);
  }
}
