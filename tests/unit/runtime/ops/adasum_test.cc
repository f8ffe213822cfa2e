/// Adasum against a plain model in double, for any number of ranks, alone and fused.
#include "ops/adasum/adasum.h"

#include <cmath>
#include <cstring>
#include <random>

#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void combine(Vector& a, const Vector& b) {
  const double ab = dot(a, b), aa = dot(a, a), bb = dot(b, b);
  const double fa = aa > 0 ? 1 - ab / (2 * aa) : 1, fb = bb > 0 ? 1 - ab / (2 * bb) : 1;
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = fa * a[i] + fb * b[i];
}

Vector tree(std::vector<Vector> v) {
  std::size_t power = 1;
  while (power * 2 <= v.size()) power *= 2;
  for (std::size_t i = power; i < v.size(); ++i) combine(v[i - power], v[i]);
  for (std::size_t d = 1; d < power; d *= 2)
    for (std::size_t i = 0; i < power; i += 2 * d) combine(v[i], v[i + d]);
  return v.front();
}

/// The reference result: combines the ranks of each node in a tree, then the nodes' results. `per_node` 0: one tree of
/// all ranks.
Vector model(const std::vector<Vector>& all, int per_node) {
  if (per_node == 0) return tree(all);
  std::vector<Vector> nodes;
  for (std::size_t at = 0; at < all.size(); at += static_cast<std::size_t>(per_node))
    nodes.push_back(tree(
        {all.begin() + static_cast<std::ptrdiff_t>(at),
         all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), at + static_cast<std::size_t>(per_node)))}));
  return tree(nodes);
}

/// A gradient with a random part that all ranks share, and a random part of the rank.
template <class T>
std::vector<T> gradient(int rank, std::size_t count, unsigned seed) {
  std::mt19937 common(seed), own(seed * 100 + static_cast<unsigned>(rank));
  std::normal_distribution<double> normal;
  std::vector<T> v;
  for (std::size_t i = 0; i < count; ++i) v.push_back(static_cast<T>(normal(common) + normal(own)));
  return v;
}

const std::vector<Split> adasum_splits =
    worlds({{1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}, {7, 0}, {2, 1}, {3, 1}, {4, 2}, {5, 2}, {7, 3}});

template <class T>
void against_model(hvd_dtype dtype, double tolerance) {
  for (const Split& s : adasum_splits)
    for (std::size_t count : {std::size_t{1}, std::size_t{5}, std::size_t{1000}, std::size_t{70001}}) {
      // Under sanitizers the long ones, of several chunks, on two and three ranks and on unequal nodes.
      if (slower > 1 && count > 1000 && s.size > 3 && !(s.size == 5 && s.per_node == 2)) continue;
      std::vector<Vector> all;
      for (int r = 0; r < s.size; ++r) {
        const std::vector<T> g = gradient<T>(r, count, static_cast<unsigned>(count));
        all.emplace_back(g.begin(), g.end());
      }
      const Vector expected = model(all, s.per_node);
      const double length = std::sqrt(dot(expected, expected) / static_cast<double>(count));
      std::vector<std::vector<T>> got(static_cast<std::size_t>(s.size));
      run_world(s.size, s.per_node, [&](Rank& rank) {
        const std::vector<T> in = gradient<T>(rank.rank(), count, static_cast<unsigned>(count));
        std::vector<T>& out = got[static_cast<std::size_t>(rank.rank())];
        for (int round = 0; round < 2; ++round) {
          out.assign(count, 0);
          hvd_request q = Rank::request(HVD_ALLREDUCE, "x", {static_cast<std::int64_t>(count)}, in.data(), out.data(),
                                        dtype, HVD_ADASUM);
          q.prescale = 0.5;
          q.postscale = 4;
          EXPECT(rank.run(q) == HVD_OK);
          for (std::size_t i = 0; i < count; ++i)
            EXPECT(std::fabs(static_cast<double>(out[i]) - 2 * expected[i]) <
                   tolerance * (length + std::fabs(expected[i])));
        }
      });
      for (const auto& other : got) CHECK(std::memcmp(other.data(), got.front().data(), count * sizeof(T)) == 0);
    }
}

}  // namespace

TEST_CASE("adasum: every number of ranks, against the model") {
  SUBCASE("float32") { against_model<float>(HVD_F32, 2e-5); }
  SUBCASE("float64") { against_model<double>(HVD_F64, 1e-11); }
}

/// one: the number's bits.
template <class T>
void narrow_floats(Rank& rank, hvd_dtype dtype, T one) {
  std::vector<T> same(100, one), apart(99, 0);
  EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "same", {100}, same.data(), same.data(), dtype, HVD_ADASUM)) == HVD_OK);
  for (T x : same) EXPECT(x == one);  // parallel: counts once
  for (std::size_t i = static_cast<std::size_t>(rank.rank()); i < 99; i += 3) apart[i] = one;
  EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "apart", {99}, apart.data(), apart.data(), dtype, HVD_ADASUM)) ==
         HVD_OK);
  for (T x : apart) EXPECT(x == one);  // orthogonal: a sum
}

TEST_CASE("adasum: floats of 16 and 8 bits") {
  for (int per_node : {0, 1})
    run_world(3, per_node, [](Rank& rank) {
      narrow_floats<std::uint16_t>(rank, HVD_F16, 0x3c00);
      narrow_floats<std::uint16_t>(rank, HVD_BF16, 0x3f80);
      narrow_floats<std::uint8_t>(rank, HVD_F8E4M3, 0x38);
      narrow_floats<std::uint8_t>(rank, HVD_F8E5M2, 0x3c);
    });
}

TEST_CASE("adasum: zeros and opposites") {
  const double none[] = {0, 0, 0};
  CHECK(ops::adasum_factors(none, 2) == std::vector<double>{1, 1});
  const double one[] = {4, 0, 0};  // the second is zero
  CHECK(ops::adasum_factors(one, 2) == std::vector<double>{1, 1});
  const double opposite[] = {4, -4, 4};
  CHECK(ops::adasum_factors(opposite, 2) == std::vector<double>{1.5, 1.5});
  // a, -a, b: the first two cancel, and the rounding error that is left has no direction.
  const double cancelled[] = {2, 1, -2, 3, 1e-16, 2};
  for (double f : ops::adasum_factors(cancelled, 3)) CHECK(std::fabs(f) < 10);
}

TEST_CASE("adasum: magnitudes as far apart as there are") {
  struct Case {
    std::vector<double> scales;  ///< [ranks]
    double expected;             ///< parallel: the mean
  };
  const auto all = [](hvd_dtype dtype, auto zero, const std::vector<Case>& cases) {
    using T = decltype(zero);
    for (const Case& c : cases)
      for (int per_node : {0, 1, 2}) {
        const int ranks = static_cast<int>(c.scales.size());
        if (per_node >= ranks) continue;
        run_world(ranks, per_node, [&](Rank& rank) {
          const double mine = c.scales[static_cast<std::size_t>(rank.rank())];
          std::vector<T> x;
          for (int i = 0; i < 1000; ++i) x.push_back(static_cast<T>(mine * (i % 7 - 3)));
          EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "x", {1000}, x.data(), x.data(), dtype, HVD_ADASUM)) == HVD_OK);
          for (int i = 0; i < 1000; ++i) {
            const double want = c.expected * (i % 7 - 3);
            EXPECT(std::fabs(static_cast<double>(x[static_cast<std::size_t>(i)]) - want) <= 1e-5 * std::fabs(want));
          }
        });
      }
  };
  // Down to f32's smallest number; four ranks from its smallest normal one up to where squares still fit.
  all(HVD_F32, 0.0f,
      {{{1e-39, 1}, 0.5},
       {{1.5e-45, 1e30}, 5e29},
       {{1e-40, 1e-40}, 1e-40},
       {{1e-30, 1e19, 1e-38, 1e5}, 2.5e18},
       {{1e19, 1e-23, 1e5, 1e-9}, 2.5e18},
       {{1e38, 1e-38, 1e38, 1e-38}, 5e37}});
  // bfloat16 has f32's range: 2^-130, one of its subnormals, beside 1.
  run_world(2, 0, [](Rank& rank) {
    std::uint16_t x = rank.rank() ? 0x3f80 : 0x0008;
    EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "x", {1}, &x, &x, HVD_BF16, HVD_ADASUM)) == HVD_OK);
    EXPECT(x == 0x3f00);
  });
  // f64: a number below the root of its range counts as zero, so the other is the result.
  all(HVD_F64, 0.0, {{{1e-100, 1}, 0.5}, {{1e-140, 1e140}, 5e139}, {{1e-200, 1}, 1}, {{0, 1e-200}, 1e-200}});
}

TEST_CASE("adasum: fused or alone, beside other operations, the bits are the same") {
  for (const Split& s : {Split{2, 0}, Split{3, 0}, Split{4, 2}, Split{5, 2}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      constexpr int count = 20;
      std::vector<std::vector<float>> in, alone;
      std::vector<std::string> names;
      const auto request = [&](int i, std::vector<float>& out) {
        const auto u = static_cast<std::size_t>(i);
        return Rank::request(HVD_ALLREDUCE, names[u].c_str(), {static_cast<std::int64_t>(in[u].size())}, in[u].data(),
                             out.data(), HVD_F32, i % 4 == 3 ? HVD_SUM : HVD_ADASUM);
      };
      for (int i = 0; i < count; ++i) {
        in.push_back(gradient<float>(rank.rank(), static_cast<std::size_t>(1 + i * i * 37), static_cast<unsigned>(i)));
        names.push_back("t" + std::to_string(i));
      }
      for (int i = 0; i < count; ++i) {
        alone.push_back(in[static_cast<std::size_t>(i)]);
        EXPECT(rank.run(request(i, alone.back())) == HVD_OK);
      }
      for (int round = 0; round < 8; ++round) {
        std::vector<std::vector<float>> out = in;
        std::vector<core::Operation*> ops(count);
        for (int j = 0; j < count; ++j) {
          const int i = (j * 7 + rank.rank() * round) % count;
          ops[static_cast<std::size_t>(i)] = &rank.submit(request(i, out[static_cast<std::size_t>(i)]));
        }
        for (core::Operation* op : ops) EXPECT(rank.finish(*op) == HVD_OK);
        for (std::size_t i = 0; i < count; ++i)
          EXPECT(std::memcmp(out[i].data(), alone[i].data(), out[i].size() * sizeof(float)) == 0);
      }
    });
}

TEST_CASE("adasum: integers are refused") {
  run_world(1, 0, [](Rank& rank) {
    std::int32_t x = 1;
    std::string text;
    EXPECT(rank.try_run(Rank::request(HVD_ALLREDUCE, "x", {}, &x, &x, HVD_I32, HVD_ADASUM), &text, 120) == HVD_USAGE);
    EXPECT(text.find("Adasum of int32") != std::string::npos);
  });
}
