/// The reductions: 16-bit floats against arithmetic in double, every length around a block's end.
#include "ops/kernels/cpu_kernels.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

using namespace hvd;
using namespace hvd::ops;

namespace {

double half_value(std::uint16_t h) {
  const int sign = h >> 15, e = (h >> 10) & 31, m = h & 1023;
  double v = e == 31 ? (m ? NAN : INFINITY) : e == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, e - 25);
  return sign ? -v : v;
}

/// Nearest half, ties to even, by search over neighbours: slow and obvious.
std::uint16_t nearest_half(double v) {
  if (std::isnan(v)) return 0x7e00;
  const std::uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  const double a = std::fabs(v);
  if (a >= 65520) return static_cast<std::uint16_t>(sign | 0x7c00);
  std::uint16_t low = 0, high = 0x7bff;
  while (low < high) {  // largest half that is <= a
    const auto middle = static_cast<std::uint16_t>((low + high + 1) / 2);
    if (half_value(middle) <= a)
      low = middle;
    else
      high = static_cast<std::uint16_t>(middle - 1);
  }
  const double below = a - half_value(low);
  const double above = (low == 0x7bff ? 65536.0 : half_value(static_cast<std::uint16_t>(low + 1))) - a;
  const bool up = above < below || (above == below && (low & 1));
  return static_cast<std::uint16_t>(sign | (low + up));
}

}  // namespace

TEST_CASE("kernels: every half survives a sum with zero") {
  std::vector<std::uint16_t> a(65536), zero(65536), out(65536);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::uint16_t>(i);
  const void* src[] = {a.data(), zero.data()};
  reducer(DType::f16, Reduce::sum)(src, 2, out.data(), a.size(), {});
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(half_value(a[i])))
      CHECK(std::isnan(half_value(out[i])));
    else if (a[i] != 0x8000)  // -0 + 0 is 0
      REQUIRE(out[i] == a[i]);
  }
}

TEST_CASE("kernels: halves are added in float and rounded once") {
  std::vector<std::uint16_t> a, b, c;
  unsigned x = 12345;
  for (int i = 0; i < 20000; ++i) {
    auto next = [&x] {
      x = x * 1664525u + 1013904223u;
      return static_cast<std::uint16_t>((x >> 16) & 0x83ff) | static_cast<std::uint16_t>(((x >> 8) % 29 + 1) << 10);
    };
    a.push_back(static_cast<std::uint16_t>(next()));
    b.push_back(static_cast<std::uint16_t>(next()));
    c.push_back(static_cast<std::uint16_t>(next()));
  }
  std::vector<std::uint16_t> out(a.size());
  const void* src[] = {a.data(), b.data(), c.data()};
  reducer(DType::f16, Reduce::sum)(src, 3, out.data(), a.size(), {});
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float sum = static_cast<float>(half_value(a[i])) + static_cast<float>(half_value(b[i])) +
                      static_cast<float>(half_value(c[i]));
    REQUIRE(out[i] == nearest_half(sum));
  }
}

TEST_CASE("kernels: every length, and integers that do not fit") {
  for (std::size_t n = 0; n < 1100; n += n < 40 ? 1 : 53) {
    std::vector<std::uint8_t> a(n, 200), b(n, 100), out(n + 1, 77);
    const void* src[] = {a.data(), b.data()};
    reducer(DType::u8, Reduce::average)(src, 2, out.data(), n, {1, 1, 2});
    for (std::size_t i = 0; i < n; ++i) REQUIRE(out[i] == 150);  // summed in 32 bits
    CHECK(out[n] == 77);
    reducer(DType::u8, Reduce::sum)(src, 2, out.data(), n, {});
    for (std::size_t i = 0; i < n; ++i) REQUIRE(out[i] == 44);  // wraps
  }
  std::int64_t big[] = {INT64_MAX, INT64_MIN, -7};
  std::int64_t one[] = {1, -1, 0}, got[3];
  const void* src[] = {big, one};
  reducer(DType::i64, Reduce::sum)(src, 2, got, 3, {});
  CHECK(got[0] == INT64_MIN);
  CHECK(got[1] == INT64_MAX);
  reducer(DType::i64, Reduce::average)(src, 2, got, 3, {1, 1, 2});
  CHECK(got[2] == -3);  // towards zero
}

TEST_CASE("kernels: unsigned integers use all their bits") {
  const std::uint32_t a[] = {4000000000u, 7}, b[] = {4000000002u, 5};
  std::uint32_t got[2];
  const void* src[] = {a, b};
  reducer(DType::u32, Reduce::average)(src, 2, got, 2, {1, 1, 2});
  CHECK((got[0] == 4000000001u && got[1] == 6));
  reducer(DType::u32, Reduce::max)(src, 2, got, 2, {});
  CHECK((got[0] == 4000000002u && got[1] == 7));
  const std::uint64_t c[] = {UINT64_MAX, 10}, d[] = {1ull << 63, 20};
  std::uint64_t wide[2];
  const void* from[] = {c, d};
  reducer(DType::u64, Reduce::min)(from, 2, wide, 2, {});
  CHECK((wide[0] == 1ull << 63 && wide[1] == 10));
  reducer(DType::u64, Reduce::sum)(from, 2, wide, 2, {});
  CHECK((wide[0] == (1ull << 63) - 1 && wide[1] == 30));  // wraps
  reducer(DType::u64, Reduce::max)(from, 2, wide, 2, {0.5});
  CHECK((wide[0] == 1ull << 63 && wide[1] == 10));
  reducer(DType::u64, Reduce::max)(from, 1, wide, 2, {4});
  CHECK((wide[0] == UINT64_MAX && wide[1] == 40));  // clamped
  reducer(DType::u64, Reduce::sum)(from, 1, wide, 2, {-1});
  CHECK(wide[1] == UINT64_MAX - 9);
}

TEST_CASE("kernels: complex numbers are added by parts, and multiplied; the dtypes' rule") {
  for (const std::size_t n : {1u, 700u}) {
    std::vector<Complex<double>> a(n, {1, 2}), b(n, {3, -1}), c(n, {0.5, 0.5});
    const void* src[] = {a.data(), b.data(), c.data()};
    reducer(DType::c128, Reduce::average)(src, 2, a.data(), n, {1, 3, 2});  // in place
    for (const auto& x : a) REQUIRE((x.re == 6 && x.im == 1.5));
    std::fill(a.begin(), a.end(), Complex<double>{1, 2});
    reducer(DType::c128, Reduce::product)(src, 3, c.data(), n, {2, 0.25});  // (1+2i)(3-i)(1+i)/2 = 5i, times 8 / 4
    for (const auto& x : c) REQUIRE((x.re == 0 && x.im == 10));
  }
  CHECK((reducer(DType::c64, Reduce::min) == nullptr && reducer(DType::opaque, Reduce::sum) == nullptr));
  CHECK((reducible(DType::c64, Reduce::average) && !reducible(DType::c64, Reduce::max)));
  CHECK((!reducible(DType::c128, Reduce::adasum) && !reducible(DType::u32, Reduce::adasum)));
  CHECK((!reducible(DType::opaque, Reduce::sum) && reducible(DType::u64, Reduce::product)));
}

TEST_CASE("kernels: a NaN stays one in Min and Max") {
  float a[] = {NAN, 1, 2}, b[] = {1, NAN, 3}, out[3];
  const void* src[] = {a, b};
  for (Reduce r : {Reduce::min, Reduce::max}) {
    reducer(DType::f32, r)(src, 2, out, 3, {});
    CHECK(std::isnan(out[0]));
    CHECK(std::isnan(out[1]));
  }
}

TEST_CASE("kernels: copies past the caches copy") {
  std::vector<unsigned char> from(5000), to(5000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7);
  for (std::size_t at : {0, 1, 13, 64}) {
    std::fill(to.begin(), to.end(), static_cast<unsigned char>(0));
    copy_streaming(to.data() + at, from.data() + 3, 4000);
    store_fence();
    CHECK(std::memcmp(to.data() + at, from.data() + 3, 4000) == 0);
    CHECK(to[at + 4000] == 0);
  }
}
