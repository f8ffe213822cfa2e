/// The kernels' host build against plain loops: index arithmetic, conversions.
#include "gpu/cuda/kernels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gpu/cuda/copy_table.h"
#include "world_of_threads.h"

using namespace hvd::cuda;
using hvd::f16, hvd::bf16, hvd::f8e4m3, hvd::f8e5m2, hvd::narrow, hvd::wide;
using hvd::testing::slower;

namespace {

struct Laid {
  std::vector<std::vector<unsigned char>> tensors;
  std::vector<Piece> pieces;
  std::uint64_t bytes = 0;
  std::vector<Table> tables;
};

/// Random tensors, some without alignment, one after the other.
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

namespace {

/// The hash of a piece, as a loop over bytes computes it.
std::uint64_t plain_hash(const unsigned char* at, std::uint64_t bytes) {
  std::uint64_t sum = 0;
  for (std::uint64_t begin = 0; begin < bytes; begin += 8) {
    std::uint64_t z = (begin / 8 + 1) * 0x9E3779B97F4A7C15, word = 0;
    std::memcpy(&word, at + begin, std::min<std::uint64_t>(8, bytes - begin));
    z += word;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    sum += z ^ (z >> 31);
  }
  return sum;
}

std::uint64_t hash_of(unsigned char* at, std::uint64_t bytes, unsigned blocks) {
  Laid one;
  one.pieces.push_back({at, 0, bytes});
  fill(one.tables.emplace_back(), one.pieces, hash_units, {});
  std::uint64_t sums[2] = {0, 0};
  run(one, blocks, [&](const Table& table, unsigned b, unsigned bs, unsigned t, unsigned ts) {
    hash_tiles(table, reinterpret_cast<unsigned char*>(sums), b, bs, t, ts);
  });
  CHECK(sums[1] == 0);
  return sums[0];
}

}  // namespace

TEST_CASE("hashes of pieces are what a loop computes, with any number of blocks, pieces and cuts") {
  std::mt19937 random(5);
  for (int round = 0; round < 40 / slower; ++round) {
    const std::uint64_t most = round % 3 ? 1u << 31 : tile_bytes * 2;
    const Laid laid = lay(random, 1, hash_units, most);
    std::vector<std::uint64_t> sums(laid.bytes / 8);
    run(laid, 1 + random() % 9, [&](const Table& table, unsigned b, unsigned bs, unsigned t, unsigned ts) {
      hash_tiles(table, reinterpret_cast<unsigned char*>(sums.data()), b, bs, t, ts);
    });
    for (const Piece& p : laid.pieces) {
      std::uint64_t expected = 0;
      for (std::uint64_t begin = 0; begin < p.units; begin += most)
        expected += plain_hash(static_cast<unsigned char*>(p.tensor) + begin, std::min(most, p.units - begin));
      REQUIRE(sums[p.at / 8] == expected);
    }
  }
}

TEST_CASE("a hash does not depend on the alignment, and every flipped bit changes it") {
  std::mt19937 random(6);
  std::vector<unsigned char> bytes(40'000), moved(40'016);
  for (auto& b : bytes) b = static_cast<unsigned char>(random());
  for (const std::uint64_t length : {1u, 7u, 8u, 1000u, 16'384u, 39'999u}) {
    const std::uint64_t hash = hash_of(bytes.data(), length, 3);
    for (std::size_t shift = 0; shift < 16; ++shift) {
      std::copy_n(bytes.begin(), length, moved.begin() + static_cast<long>(shift));
      CHECK(hash_of(moved.data() + shift, length, 1 + static_cast<unsigned>(shift)) == hash);
    }
    for (int i = 0; i < 300 / slower; ++i) {
      const std::size_t bit = random() % (8 * length);
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
      CHECK(hash_of(bytes.data(), length, 3) != hash);
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    }
  }
  std::vector<unsigned char> swapped(64);
  swapped[0] = swapped[9] = 1;
  const std::uint64_t before = hash_of(swapped.data(), 64, 1);
  std::swap_ranges(swapped.begin(), swapped.begin() + 8, swapped.begin() + 8);
  CHECK(hash_of(swapped.data(), 64, 1) != before);
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
