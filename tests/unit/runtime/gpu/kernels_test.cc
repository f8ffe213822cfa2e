/// The kernels' host build against plain loops: index arithmetic, conversions.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cuda/combine.h"
#include "cuda/table.h"
#include "world_of_threads.h"

using namespace hvd::cuda;
using hvd::testing::slower;

namespace {

struct Laid {
  std::vector<std::vector<unsigned char>> tensors;
  std::vector<Piece> pieces;
  std::uint64_t bytes = 0;
  std::vector<Table> tables;
};

/// Random tensors, some empty of alignment, laid one behind the other.
Laid lay(std::mt19937& random, std::size_t element, const Units& kind, std::uint64_t most_units = 1u << 31) {
  const bool units_are_bytes = kind.in_tensor == 1;
  const std::uint64_t tile = kind.tile;
  Laid laid;
  const std::size_t count = 1 + random() % (random() % 8 == 0 ? 450 : 40);
  laid.tensors.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t most = random() % 8 == 0 ? 5 * tile : 3000;
    const std::uint64_t units = 1 + random() % most;
    const std::size_t bytes = units_are_bytes ? units : units * element;
    laid.tensors.emplace_back(bytes + 32);
    auto* at = laid.tensors.back().data();
    at += (16 - reinterpret_cast<std::uintptr_t>(at) % 16) % 16;
    at += random() % 3 == 0 ? (units_are_bytes ? random() % 16 : element * (random() % 4) % 16) : 0;
    for (std::size_t k = 0; k < bytes; ++k) at[k] = static_cast<unsigned char>(random());
    laid.pieces.push_back({at, laid.bytes, units});
    laid.bytes += (bytes * 4 + 15) / 16 * 16;  // a wide buffer takes up to four times the bytes
  }
  for (Filled from; from.piece < laid.pieces.size();)
    from = fill(laid.tables.emplace_back(), laid.pieces, kind, from, most_units);
  return laid;
}

template <class F>
void run(const Laid& laid, unsigned blocks, F&& kernel) {
  for (const Table& table : laid.tables)
    for (unsigned b = 0; b < blocks; ++b)
      for (unsigned t = 0; t < 32; ++t) kernel(table, b, blocks, t, 32u);
}

}  // namespace

TEST_CASE("every tile belongs to the piece that it falls in") {
  std::mt19937 random(1);
  for (int round = 0; round < 50 / slower; ++round) {
    const Laid laid = lay(random, 1, byte_units);
    std::size_t p = 0;
    for (const Table& table : laid.tables) {
      std::uint32_t t = 0;
      for (std::uint32_t row = 0; row < table.count; ++row, ++p)
        for (std::uint32_t begin = 0; begin < laid.pieces[p].units; begin += tile_bytes, ++t) {
          const Tile tile = tile_at(table, t, tile_bytes);
          REQUIRE(tile.piece == row);
          REQUIRE(tile.begin == begin);
          REQUIRE(tile.length == std::min<std::uint64_t>(tile_bytes, laid.pieces[p].units - begin));
        }
      REQUIRE(t == table.tiles);
    }
    REQUIRE(p == laid.pieces.size());
  }
}

TEST_CASE("a tensor that is too long for a table's numbers is cut") {
  Table table;
  const std::uint64_t units = (std::uint64_t{5} << 31) + 3;
  const std::vector<Piece> pieces{{reinterpret_cast<void*>(64), 0, 7}, {reinterpret_cast<void*>(4096), 256, units}};
  const Filled end = fill(table, pieces, scale_units[4], {});  // of two bytes, in a buffer of four
  CHECK(end.piece == 2);
  REQUIRE(table.count == 7);
  for (std::uint32_t row = 1; row < 7; ++row) {
    const std::uint64_t before = std::uint64_t{row - 1} << 31;
    CHECK(table.tensor[row] == reinterpret_cast<void*>(4096 + before * 2));
    CHECK(std::uint64_t{table.at[row]} * 16 == 256 + before * 4);
    CHECK(table.units[row] == std::min<std::uint64_t>(1u << 31, units - before));
    CHECK(table.first_tile[row] == 1 + before / tile_elements);
  }
}

TEST_CASE("gather and scatter move every byte, and no other") {
  std::mt19937 random(2);
  for (int round = 0; round < 40 / slower; ++round) {
    Laid laid = lay(random, 4, byte_units, round % 3 ? 1u << 31 : tile_bytes * 2);
    std::vector<unsigned char> buffer(laid.bytes + 16, 0xee), expected = buffer;
    auto* base = buffer.data() + (16 - reinterpret_cast<std::uintptr_t>(buffer.data()) % 16) % 16;
    const auto shift = base - buffer.data();
    for (const Piece& p : laid.pieces) std::memcpy(expected.data() + shift + p.at, p.tensor, p.units);
    const unsigned blocks = 1 + random() % 9;
    run(laid, blocks, [&](const Table& table, unsigned b, unsigned bs, unsigned t, unsigned ts) {
      copy_tiles<true>(table, base, b, bs, t, ts);
    });
    REQUIRE(buffer == expected);
    const auto before = laid.tensors;
    for (const Piece& p : laid.pieces) std::memset(p.tensor, 0, p.units);
    run(laid, blocks, [&](const Table& table, unsigned b, unsigned bs, unsigned t, unsigned ts) {
      copy_tiles<false>(table, base, b, bs, t, ts);
    });
    REQUIRE(laid.tensors == before);
  }
}

TEST_CASE_TEMPLATE("scaling kernels compute what a loop computes", Types, std::pair<float, float>,
                   std::pair<double, double>, std::pair<f16, f16>, std::pair<bf16, bf16>, std::pair<f16, float>,
                   std::pair<bf16, float>, std::pair<f8e4m3, float>, std::pair<f8e5m2, float>) {
  using T = typename Types::first_type;
  using B = typename Types::second_type;
  std::mt19937 random(3);
  for (int round = 0; round < 25 / slower; ++round) {
    Laid laid = lay(random, sizeof(T), {sizeof(T), sizeof(B), tile_elements}, round % 3 ? 1u << 31 : tile_elements);
    for (Piece& p : laid.pieces)
      for (std::uint64_t i = 0; i < p.units; ++i)
        narrow(static_cast<decltype(wide(T{}))>(static_cast<int>(random() % 4000) - 2000) / 16,
               static_cast<T*>(p.tensor)[i]);
    std::vector<unsigned char> buffer(laid.bytes + 16);
    auto* base = buffer.data() + (16 - reinterpret_cast<std::uintptr_t>(buffer.data()) % 16) % 16;
    const double factor = 1.0 / static_cast<double>(1 + random() % 7);
    run(laid, 3, [&](const Table& table, unsigned b, unsigned bs, unsigned t, unsigned ts) {
      scale_tiles<true, T, B>(table, base, factor, b, bs, t, ts);
    });
    bool same = true;
    for (const Piece& p : laid.pieces)
      for (std::uint64_t i = 0; i < p.units; ++i) {
        B expected;
        const auto x = wide(static_cast<T*>(p.tensor)[i]);
        narrow(x * static_cast<decltype(x)>(factor), expected);
        same &= std::memcmp(&expected, base + p.at + i * sizeof(B), sizeof(B)) == 0;
      }
    REQUIRE(same);
    run(laid, 2, [&](const Table& table, unsigned b, unsigned bs, unsigned t, unsigned ts) {
      scale_tiles<false, T, B>(table, base, 2, b, bs, t, ts);
    });
    for (const Piece& p : laid.pieces)
      for (std::uint64_t i = 0; i < p.units; ++i) {
        T expected;
        const auto x = wide(reinterpret_cast<const B*>(base + p.at)[i]);
        narrow(x * 2, expected);
        same &= std::memcmp(&expected, static_cast<T*>(p.tensor) + i, sizeof(T)) == 0;
      }
    REQUIRE(same);
  }
}

TEST_CASE("16-bit floats: every one of them comes back, and rounding is to the nearest") {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    f16 h{static_cast<std::uint16_t>(bits)}, back{};
    narrow(wide(h), back);
    const bool nan = (bits & 0x7fffu) > 0x7c00u;
    REQUIRE((nan ? (back.bits & 0x7fffu) > 0x7c00u : back.bits == h.bits));
    bf16 b{static_cast<std::uint16_t>(bits)}, again{};
    narrow(wide(b), again);
    const bool not_a_number = (bits & 0x7fffu) > 0x7f80u;
    REQUIRE((not_a_number ? (again.bits & 0x7fffu) > 0x7f80u : again.bits == b.bits));
  }
  std::mt19937 random(4);
  for (int i = 0; i < 200000 / slower; ++i) {
    const float x =
        std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 60) - 60) * (random() % 2 ? 1.f : -1.f);
    f16 h;
    narrow(x, h);
    const float y = wide(h);
    if (std::isinf(y)) {
      REQUIRE(std::fabs(x) >= 65520.f);
      continue;
    }
    for (int step : {-1, 1}) {  // no neighbour is nearer
      const float z = wide(f16{static_cast<std::uint16_t>(h.bits + step)});
      if (!std::isfinite(z) || (z < 0) != (y < 0)) continue;
      const double away = std::fabs(static_cast<double>(x) - static_cast<double>(y));
      const double other = std::fabs(static_cast<double>(x) - static_cast<double>(z));
      REQUIRE((away < other || (away == other && h.bits % 2 == 0)));
    }
  }
}

namespace {

template <class F>
void every_thread(unsigned blocks, F&& kernel) {
  for (unsigned b = 0; b < blocks; ++b)
    for (unsigned t = 0; t < 32; ++t) kernel(b, blocks, t, 32u);
}

template <class T>
void check_combine(std::mt19937& random, Combine how) {
  const std::uint32_t count = 1 + random() % 5, me = static_cast<std::uint32_t>(random() % count);
  const std::size_t n = random() % 4 == 0 ? 3 * tile_combined + random() % 100 : 1 + random() % 100;
  const std::size_t stride = (n * sizeof(T) + 127) / 128 * 128;
  std::vector<Line> lines(stride / 16 * count + 1);
  auto* mine = reinterpret_cast<unsigned char*>(lines.data());
  unsigned char* others = mine + stride;
  std::vector<std::vector<T>> parts(count, std::vector<T>(n));
  for (std::uint32_t r = 0; r < count; ++r) {
    for (T& x : parts[r]) x = static_cast<T>(random() % 256);
    std::memcpy(r == me ? mine : others + (r < me ? r : r - 1) * stride, parts[r].data(), n * sizeof(T));
  }
  const Parts p{mine, others, stride, count, me, n};
  every_thread(1 + static_cast<unsigned>(random() % 5),
               [&](unsigned b, unsigned bs, unsigned t, unsigned ts) { combine_tiles<T>(p, how, b, bs, t, ts); });
  for (std::size_t i = 0; i < n; ++i) {
    T expected = parts[0][i];
    for (std::uint32_t r = 1; r < count; ++r) {
      const T x = parts[r][i];
      if (how == Combine::min) expected = std::min(expected, x);
      if (how == Combine::max) expected = std::max(expected, x);
      if (how == Combine::sum) expected = static_cast<T>(expected + x);
      if (how == Combine::product) expected = static_cast<T>(expected * x);
    }
    REQUIRE(reinterpret_cast<T*>(mine)[i] == expected);
  }
  if (n * sizeof(T) < stride && count > 1) REQUIRE(mine[n * sizeof(T)] == 0);  // and nothing behind it
}

}  // namespace

TEST_CASE("what all ranks sent is reduced in their order, and lands in this rank's part") {
  std::mt19937 random(12);
  for (int round = 0; round < 60 / slower; ++round)
    for (const Combine how : {Combine::sum, Combine::product, Combine::min, Combine::max}) {
      check_combine<float>(random, how);
      check_combine<double>(random, how);
      check_combine<std::uint8_t>(random, how);
      check_combine<std::int64_t>(random, how);
    }
  CHECK(combined<std::int8_t>(127, 1, Combine::sum) == -128);
  CHECK(combined<std::int32_t>(INT32_MAX, 2, Combine::product) == -2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Combine how : {Combine::min, Combine::max}) {
    CHECK(std::isnan(combined(nan, 1.f, how)));
    CHECK(std::isnan(combined(1.f, nan, how)));
  }
}

TEST_CASE("16-bit floats of all ranks are rounded once") {
  struct alignas(16) {
    bf16 mine[8];
    bf16 others[8 * 3];
  } all{};
  narrow(256.f, all.mine[0]);
  for (int r = 0; r < 3; ++r) narrow(0.75f, all.others[r * 8]);  // each alone would be lost: bf16 has 8 bits there
  const Parts p{
      reinterpret_cast<unsigned char*>(all.mine), reinterpret_cast<const unsigned char*>(all.others), 16, 4, 0, 8};
  every_thread(
      1, [&](unsigned b, unsigned bs, unsigned t, unsigned ts) { combine_tiles<bf16>(p, Combine::sum, b, bs, t, ts); });
  CHECK(wide(all.mine[0]) == 258.f);
  CHECK(wide(all.mine[7]) == 0.f);
}
