/// alltoall, reducescatter, and many operations in one batch, compared with a plain loop.
#include <cmath>
#include <cstring>
#include <random>

#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

const std::vector<Split> operations_splits =
    worlds({{1, 0}, {2, 0}, {3, 0}, {4, 0}, {2, 1}, {4, 2}, {3, 1}, {3, 2}, {5, 2}, {7, 3}});

/// The number of rows that rank a sends to rank b.
std::int64_t rows_between(int a, int b, std::int64_t unit) { return (a * 3 + b * 5 + 1) % 4 * unit; }

/// The value of row i from a to b.
float value(int a, int b, std::int64_t i) { return static_cast<float>(a * 100 + b * 10 + i % 7); }

struct Exchanged {
  std::vector<std::int64_t> splits;
  std::vector<float> in;
};

Exchanged alltoall_input(int rank, int size, std::int64_t unit) {
  Exchanged x;
  for (int b = 0; b < size; ++b) {
    x.splits.push_back(rows_between(rank, b, unit));
    for (std::int64_t i = 0; i < x.splits.back(); ++i)
      for (int column = 0; column < 3; ++column) x.in.push_back(value(rank, b, i) + 0.25f * static_cast<float>(column));
  }
  return x;
}

void expect_alltoall(core::Operation& op, int rank, int size, std::int64_t unit) {
  const float* at = static_cast<const float*>(op.result);
  std::int64_t total = 0;
  EXPECT(op.received.size() == static_cast<std::size_t>(size));
  for (int a = 0; a < size; ++a) {
    const std::int64_t rows = rows_between(a, rank, unit);
    EXPECT(op.received[static_cast<std::size_t>(a)] == rows);
    total += rows;
    for (std::int64_t i = 0; i < rows; ++i)
      for (int column = 0; column < 3; ++column)
        EXPECT(*at++ == value(a, rank, i) + 0.25f * static_cast<float>(column));
  }
  EXPECT((op.result_shape == std::vector<std::int64_t>{total, 3}));
}

hvd_request alltoall_request(const char* name, const Exchanged& x) {
  hvd_request q =
      Rank::request(HVD_ALLTOALL, name, {static_cast<std::int64_t>(x.in.size()) / 3, 3}, x.in.data(), nullptr);
  q.splits = x.splits.data();
  q.num_splits = static_cast<int>(x.splits.size());
  return q;
}

core::Operation& done(Rank& rank, core::Operation& op) {
  EXPECT(rank.engine().wait(op, 120));
  if (op.status != HVD_OK) throw std::runtime_error(op.error);
  return op;
}

}  // namespace

TEST_CASE("operations: alltoall with splits, record and bit") {
  for (const Split& s : operations_splits)
    run_world(s.size, s.per_node, [](Rank& rank) {
      for (std::int64_t unit : {0, 1, 37, 20000})
        for (int round = 0; round < 2; ++round) {
          const Exchanged x = alltoall_input(rank.rank(), rank.size(), unit);
          core::Operation& op = done(rank, rank.submit(alltoall_request("x", x)));
          expect_alltoall(op, rank.rank(), rank.size(), unit);
          rank.engine().operations().release(op);
        }
    });
}

TEST_CASE("operations: a result lies in the caller's memory where that is just as large, else it is taken") {
  for (const Split& s : operations_splits)
    run_world(s.size, s.per_node, [](Rank& rank) {
      for (const std::size_t more : {0u, 1u}) {
        const Exchanged x = alltoall_input(rank.rank(), rank.size(), 37);
        std::int64_t rows = 0;
        for (int a = 0; a < rank.size(); ++a) rows += rows_between(a, rank.rank(), 37);
        std::vector<float> out(static_cast<std::size_t>(rows) * 3 + more);
        hvd_request q = alltoall_request("x", x);
        q.out = out.data();
        q.out_bytes = out.size() * sizeof(float);
        core::Operation& op = done(rank, rank.submit(q));
        EXPECT((op.result == nullptr) == (more == 0 && rows > 0));
        if (!op.result) op.result = out.data();
        expect_alltoall(op, rank.rank(), rank.size(), 37);
        if (op.result == out.data()) op.result = nullptr;
        rank.engine().operations().release(op);

        const std::int64_t divided = 1001, mine = divided / rank.size() + (rank.rank() < divided % rank.size());
        std::vector<double> in(static_cast<std::size_t>(divided), rank.rank() + 1);
        const std::int64_t before =
            divided / rank.size() * rank.rank() + std::min<std::int64_t>(rank.rank(), divided % rank.size());
        q = Rank::request(HVD_REDUCESCATTER, "r", {divided}, in.data(), in.data() + before, HVD_F64, HVD_SUM);
        q.out_bytes = (static_cast<std::size_t>(mine) + more) * sizeof(double);  // more than its own part
        core::Operation& sum = done(rank, rank.submit(q));
        EXPECT((sum.result == nullptr) == (more == 0));
        const double* found = sum.result ? static_cast<double*>(sum.result) : in.data() + before;
        for (std::int64_t i = 0; i < mine; ++i) EXPECT(found[i] == rank.size() * (rank.size() + 1) / 2);
        rank.engine().operations().release(sum);
      }
    });
}

TEST_CASE("operations: alltoall in equal parts, of every width") {
  for (const Split& s : operations_splits)
    run_world(s.size, s.per_node, [](Rank& rank) {
      const auto n = static_cast<std::size_t>(rank.size());
      for (hvd_dtype dtype : {HVD_BOOL, HVD_F8E4M3, HVD_BF16, HVD_I32, HVD_F64}) {
        const std::size_t width = element_bytes(static_cast<DType>(dtype)), rows = 5;
        std::vector<unsigned char> in(n * rows * width);
        for (std::size_t i = 0; i < in.size(); ++i)
          in[i] = static_cast<unsigned char>(i / (rows * width) * 16 + static_cast<std::size_t>(rank.rank()));
        core::Operation& op =
            done(rank, rank.submit(Rank::request(HVD_ALLTOALL, nullptr, {static_cast<std::int64_t>(n * rows)},
                                                 in.data(), nullptr, dtype)));
        EXPECT(op.result_shape[0] == static_cast<std::int64_t>(n * rows));
        const auto* out = static_cast<const unsigned char*>(op.result);
        for (std::size_t i = 0; i < in.size(); ++i)
          EXPECT(out[i] == static_cast<unsigned char>(static_cast<std::size_t>(rank.rank()) * 16 + i / (rows * width)));
        rank.engine().operations().release(op);
      }
    });
}

TEST_CASE("operations: reducescatter divides the rows, the first ranks get one more") {
  for (const Split& s : operations_splits)
    run_world(s.size, s.per_node, [](Rank& rank) {
      const int n = rank.size(), me = rank.rank();
      for (std::int64_t rows : {0, 1, 3, 7, 64, 1001, 90000})
        for (hvd_reduce reduce : {HVD_SUM, HVD_AVERAGE})
          for (int round = 0; round < 2; ++round) {
            std::vector<double> in(static_cast<std::size_t>(rows) * 3);
            for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<double>(i % 1000) + me;
            const std::string name = std::to_string(rows) + (reduce == HVD_SUM ? "s" : "a");
            hvd_request q =
                Rank::request(HVD_REDUCESCATTER, name.c_str(), {rows, 3}, in.data(), nullptr, HVD_F64, reduce);
            q.prescale = 0.5;
            q.postscale = 4;
            core::Operation& op = done(rank, rank.submit(q));
            const std::int64_t mine = rows / n + (me < rows % n),
                               before = rows / n * me + std::min<std::int64_t>(me, rows % n);
            EXPECT((op.result_shape == std::vector<std::int64_t>{mine, 3}));
            const auto* out = static_cast<const double*>(op.result);
            for (std::int64_t i = 0; i < mine * 3; ++i) {
              const double sum = 2 * (static_cast<double>((before * 3 + i) % 1000) * n + n * (n - 1) / 2);
              EXPECT(std::fabs(out[i] - (reduce == HVD_SUM ? sum : sum / n)) < 1e-9);
            }
            rank.engine().operations().release(op);
          }
    });
}

TEST_CASE("operations: a reducescatter has the bits of the allreduce's rows, whatever was fused") {
  for (const Split& s : {Split{2, 0}, Split{3, 0}, Split{4, 2}, Split{5, 2}, Split{3, 1}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      std::mt19937 random(static_cast<unsigned>(rank.rank()) + 5);
      std::normal_distribution<float> normal;
      constexpr int count = 12;
      std::vector<std::vector<float>> in(count), whole(count);
      std::vector<std::string> names;
      for (int i = 0; i < count; ++i) {
        const auto u = static_cast<std::size_t>(i);
        in[u].resize(static_cast<std::size_t>(1 + i * i * 90));
        for (float& x : in[u]) x = normal(random);
        whole[u] = in[u];
        names.push_back("t" + std::to_string(i));
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, ("a" + names[u]).c_str(),
                                      {static_cast<std::int64_t>(in[u].size())}, in[u].data(), whole[u].data())) ==
               HVD_OK);
      }
      for (int round = 0; round < 6; ++round) {
        std::vector<core::Operation*> ops(count);
        for (int j = 0; j < count; ++j) {
          const auto i = static_cast<std::size_t>((j * 5 + rank.rank() * round) % count);
          ops[i] = &rank.submit(Rank::request(HVD_REDUCESCATTER, names[i].c_str(),
                                              {static_cast<std::int64_t>(in[i].size())}, in[i].data(), nullptr));
        }
        for (std::size_t i = 0; i < count; ++i) {
          core::Operation& op = done(rank, *ops[i]);
          const std::int64_t rows = static_cast<std::int64_t>(in[i].size()), n = rank.size(), me = rank.rank();
          const std::int64_t before = rows / n * me + std::min(me, rows % n);
          EXPECT(std::memcmp(op.result, whole[i].data() + before,
                             static_cast<std::size_t>(op.result_shape[0]) * sizeof(float)) == 0);
          rank.engine().operations().release(op);
        }
      }
    });
}

TEST_CASE("operations: everything in one batch, every dtype mixed") {
  for (const Split& s : operations_splits)
    run_world(s.size, s.per_node, [](Rank& rank) {
      const int n = rank.size(), me = rank.rank();
      for (int round = 0; round < 8; ++round) {
        std::vector<core::Operation*> gathers, alltoalls;
        std::vector<std::vector<std::int32_t>> rows(30);
        std::vector<Exchanged> exchanged;
        std::vector<std::vector<double>> sums(10, std::vector<double>(50));
        std::vector<std::vector<std::uint8_t>> roots(10, std::vector<std::uint8_t>(700));
        std::vector<core::Operation*> plain;
        for (int i = 0; i < 10; ++i) exchanged.push_back(alltoall_input(me, n, i));
        for (int i = 0; i < 30; ++i) {
          const auto u = static_cast<std::size_t>(i);
          rows[u].assign(static_cast<std::size_t>((me + i + round) % 4 * i), me * 1000 + i);
          gathers.push_back(&rank.submit(Rank::request(HVD_ALLGATHER, ("g" + std::to_string(i)).c_str(),
                                                       {static_cast<std::int64_t>(rows[u].size())}, rows[u].data(),
                                                       nullptr, HVD_I32)));
          if (i >= 10) continue;
          alltoalls.push_back(&rank.submit(alltoall_request(("x" + std::to_string(i)).c_str(), exchanged[u])));
          for (double& x : sums[u]) x = me + i;
          plain.push_back(&rank.submit(Rank::request(HVD_ALLREDUCE, ("s" + std::to_string(i)).c_str(), {50},
                                                     sums[u].data(), sums[u].data(), HVD_F64)));
          for (std::uint8_t& x : roots[u]) x = static_cast<std::uint8_t>(me * 10 + i);
          const std::string name = "b" + std::to_string(i);  // outlives the request
          hvd_request q = Rank::request(HVD_BROADCAST, name.c_str(), {700}, roots[u].data(), roots[u].data(), HVD_U8);
          q.root = i % n;
          plain.push_back(&rank.submit(q));
        }
        for (core::Operation* op : plain) EXPECT(rank.finish(*op) == HVD_OK);
        for (int i = 0; i < 10; ++i) {
          const auto u = static_cast<std::size_t>(i);
          for (double x : sums[u]) EXPECT(x == n * i + n * (n - 1) / 2);
          for (std::uint8_t x : roots[u]) EXPECT(x == i % n * 10 + i);
          expect_alltoall(done(rank, *alltoalls[u]), me, n, i);
          rank.engine().operations().release(*alltoalls[u]);
        }
        for (int i = 0; i < 30; ++i) {
          core::Operation& op = done(rank, *gathers[static_cast<std::size_t>(i)]);
          const auto* at = static_cast<const std::int32_t*>(op.result);
          for (int r = 0; r < n; ++r)
            for (int k = 0; k < (r + i + round) % 4 * i; ++k) EXPECT(*at++ == r * 1000 + i);
          EXPECT(op.result_shape[0] == at - static_cast<const std::int32_t*>(op.result));
          rank.engine().operations().release(op);
        }
      }
    });
}

TEST_CASE("operations: wrong arguments of alltoall and reducescatter are refused") {
  run_world(2, 0, [](Rank& rank) {
    float data[12] = {};
    std::string text;
    const auto refused = [&](const hvd_request& q, const char* why) {
      EXPECT(rank.try_run(q, &text, 120) == HVD_USAGE);
      if (text.find(why) == std::string::npos) throw std::runtime_error(text);
    };
    refused(Rank::request(HVD_ALLTOALL, "x", {3}, data, nullptr), "no multiple");
    refused(Rank::request(HVD_ALLTOALL, "x", {}, data, nullptr), "scalar");
    refused(Rank::request(HVD_REDUCESCATTER, "x", {}, data, nullptr), "scalar");
    refused(Rank::request(HVD_REDUCESCATTER, "x", {4}, data, nullptr, HVD_F32, HVD_MAX), "Max is not possible");
    const auto with = [&](std::vector<std::int64_t> given, const char* why) {
      hvd_request q = Rank::request(HVD_ALLTOALL, "x", {4}, data, nullptr);
      q.splits = given.data();
      q.num_splits = static_cast<int>(given.size());
      refused(q, why);
    };
    with({4}, "1 splits were given for 2 ranks");
    with({1, 2}, "add up to 3");
    with({5, -1}, "more than the first dimension");
    with({-1, 5}, "negative");
    with({INT64_MAX, INT64_MAX}, "more than");
    hvd_request q = Rank::request(HVD_ALLREDUCE, "x", {4}, data, data);
    const std::int64_t one[] = {4};
    q.splits = one;
    refused(q, "alltoall only");
    q = Rank::request(HVD_ALLREDUCE, "x", {4}, data, data);
    q.struct_size = offsetof(hvd_request, splits);  // a caller compiled before there were splits
    EXPECT(rank.run(q) == HVD_OK);
  });
}
