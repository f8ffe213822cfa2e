/// 8-bit floats: every code, every rounding, and the reductions of all pairs, against arithmetic in double.
#include "common/float8.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ops/kernels/cpu_kernels.h"

namespace hvd::ops {
ReduceFn reducer_baseline(DType, Reduce);  // cpu_kernels.cc's, for CPUs without AVX2
}

using namespace hvd;

namespace {

/// The specification of a type: its tables 1 and 2.
struct Format {
  DType dtype;
  int fraction, bias;
  unsigned last;     ///< the largest number's code
  double too_large;  ///< every number from here on rounds to no finite number
  bool infinity;
};
constexpr Format formats[] = {{DType::f8e4m3, 3, 7, 0x7e, 464, false}, {DType::f8e5m2, 2, 15, 0x7b, 61440, true}};

double value(const Format& k, unsigned code) {
  const unsigned size = code & 0x7f;
  const int exponent = static_cast<int>(size >> k.fraction);
  const int fraction = static_cast<int>(size & ((1u << k.fraction) - 1));
  double v = exponent == 0 ? std::ldexp(fraction, 1 - k.bias - k.fraction)
                           : std::ldexp((1 << k.fraction) + fraction, exponent - k.bias - k.fraction);
  if (size > k.last) v = k.infinity && size == k.last + 1 ? INFINITY : NAN;
  return code & 0x80 ? -v : v;
}

/// The nearest code, ties to even, among all of them.
unsigned nearest(const Format& k, double x) {
  const unsigned sign = std::signbit(x) ? 0x80 : 0;
  const double size = std::fabs(x);
  if (std::isnan(x)) return 0x7f;
  if (size > k.too_large || (size == k.too_large && k.last % 2 == 1)) return sign | (k.last + 1);
  static const auto numbers = [] {
    std::array<std::vector<double>, 2> all;
    for (const Format& f : formats)
      for (unsigned code = 0; code <= f.last; ++code) all[f.infinity].push_back(value(f, code));
    return all;
  }();
  const std::vector<double>& all = numbers[k.infinity];
  const auto above = static_cast<unsigned>(std::lower_bound(all.begin(), all.end(), size) - all.begin());
  if (above == all.size()) return sign | k.last;
  if (above == 0) return sign;
  const double up = all[above] - size, down = size - all[above - 1];
  return sign | (up < down || (up == down && above % 2 == 0) ? above : above - 1);
}

bool is_nan(const Format& k, unsigned code) { return std::isnan(value(k, code)); }
bool same(const Format& k, unsigned a, unsigned b) { return a == b || (is_nan(k, a) && is_nan(k, b)); }

float widen(const Format& k, unsigned code) {
  const auto bits = static_cast<std::uint8_t>(code);
  return k.infinity ? from_float8(f8e5m2{bits}) : from_float8(f8e4m3{bits});
}
unsigned narrow(const Format& k, float x) { return k.infinity ? to_float8<f8e5m2>(x).bits : to_float8<f8e4m3>(x).bits; }

using Bytes = std::vector<std::uint8_t>;

/// All pairs: a[i] with b[i].
struct Pairs {
  Bytes a, b;
  Pairs() {
    for (unsigned i = 0; i < 65536; ++i)
      a.push_back(static_cast<std::uint8_t>(i >> 8)), b.push_back(static_cast<std::uint8_t>(i));
  }
};

/// Checks that both instruction sets' kernels give @p expected(value of a, value of b), rounded once.
template <class F>
void check_pairs(Reduce reduce, const ops::Scale& scale, F expected) {
  const Pairs pairs;
  const void* src[] = {pairs.a.data(), pairs.b.data()};
  for (const Format& k : formats)
    for (const ops::ReduceFn kernel : {ops::reducer(k.dtype, reduce), ops::reducer_baseline(k.dtype, reduce)}) {
      Bytes out(65536 + 1, 0x55);
      kernel(src, 2, out.data(), 65536, scale);
      for (std::size_t i = 0; i < 65536; ++i) {
        const unsigned want = nearest(k, expected(value(k, pairs.a[i]), value(k, pairs.b[i])));
        if (!same(k, out[i], want))
          FAIL(name_of(k.dtype), " ", +pairs.a[i], " ", +pairs.b[i], ": ", +out[i], " ", want);
      }
      CHECK(out[65536] == 0x55);
    }
}

}  // namespace

TEST_CASE("8-bit floats: every code is the number that it stands for, and comes back") {
  for (const Format& k : formats)
    for (unsigned code = 0; code < 256; ++code) {
      const float x = widen(k, code);
      if (is_nan(k, code)) {
        CHECK(std::isnan(x));
        CHECK(narrow(k, x) % 128 == 0x7f);
      } else {
        CHECK(static_cast<double>(x) == value(k, code));
        CHECK(std::signbit(x) == (code >= 128));
        CHECK(narrow(k, x) == code);
      }
    }
}

TEST_CASE("8-bit floats: rounded to the nearest, ties to even, and what is too large is no number") {
  for (const Format& k : formats) {
    auto check = [&](float x) {
      if (!same(k, narrow(k, x), nearest(k, x))) FAIL(name_of(k.dtype), " ", x, ": ", narrow(k, x), " ", nearest(k, x));
    };
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (unsigned code = 0; code <= k.last; ++code) {  // each number, each tie, and their neighbours
      const auto x = static_cast<float>(value(k, code));
      const auto next =
          code == k.last ? static_cast<float>(2 * k.too_large) - x : static_cast<float>(value(k, code + 1));
      for (const float at : {x, (x + next) / 2})
        for (const float near : {at, std::nextafter(at, 0.f), std::nextafter(at, infinity)}) check(near), check(-near);
    }
    for (const float x : {infinity, std::numeric_limits<float>::max(), 465.f, 480.f, 61439.f, 65536.f, 1e-45f, 1e-38f,
                          std::numeric_limits<float>::min(), std::nanf("1")})
      check(x), check(-x);
    std::mt19937 random(5);
    for (int i = 0; i < 20000; ++i) check(as_float(static_cast<std::uint32_t>(random())));
    for (int i = 0; i < 20000; ++i)
      check(std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 36) - 52));
  }
  CHECK(narrow(formats[0], 464) == 0x7e);  // the last tie goes down
  CHECK(narrow(formats[0], -465) % 128 == 0x7f);
  CHECK(narrow(formats[1], -61440) == 0xfc);
}

TEST_CASE("8-bit floats: all pairs, added up, averaged, scaled, multiplied, compared: as in double, rounded once") {
  check_pairs(Reduce::sum, {}, [](double a, double b) { return a + b; });
  check_pairs(Reduce::average, {1, 1, 2}, [](double a, double b) { return (a + b) / 2; });
  check_pairs(Reduce::sum, {0.25, 8, 1}, [](double a, double b) { return (a + b) * 2; });
  check_pairs(Reduce::product, {}, [](double a, double b) { return a * b; });
  auto ordered = [](auto pick) {
    return [pick](double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : pick(a, b); };
  };
  check_pairs(Reduce::min, {}, ordered([](double a, double b) { return a < b ? a : b; }));
  check_pairs(Reduce::max, {}, ordered([](double a, double b) { return a > b ? a : b; }));
}

TEST_CASE("8-bit floats: every length, at every place, and over one of the inputs") {
  for (const Format& k : formats)
    for (std::size_t n = 0; n < 1100; n += n < 40 ? 1 : 53) {
      Bytes a(n + 1), b(n + 1), c(n + 1), out(n + 2, 0x55);
      for (std::size_t i = 0; i < n + 1; ++i) {
        a[i] = static_cast<std::uint8_t>(i % 0x60), b[i] = static_cast<std::uint8_t>(0x80 + i * 3 % 0x60);
        c[i] = static_cast<std::uint8_t>(i * 7 % 0x60);
      }
      const void* src[] = {a.data() + 1, b.data() + 1, c.data() + 1};
      ops::reducer(k.dtype, Reduce::sum)(src, 3, out.data() + 1, n, {});
      for (std::size_t i = 0; i < n; ++i) {
        const double sum = value(k, a[i + 1]) + value(k, b[i + 1]) + value(k, c[i + 1]);
        REQUIRE(value(k, out[i + 1]) == value(k, nearest(k, sum)));  // a sum of 0 may have either sign
      }
      CHECK((out[0] == 0x55 && out[n + 1] == 0x55));
      const Bytes apart(out.begin() + 1, out.begin() + 1 + static_cast<std::ptrdiff_t>(n));
      ops::reducer(k.dtype, Reduce::sum)(src, 3, b.data() + 1, n, {});
      CHECK(Bytes(b.begin() + 1, b.end()) == apart);
    }
}
