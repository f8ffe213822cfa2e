/// The kernels' host build against plain loops: index arithmetic, conversions.
#include "cuda/kernels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "world_of_threads.h"

using namespace hvd::cuda;
using hvd::testing::slower;

namespace {

struct Laid {
  std::vector<std::vector<unsigned char>> tensors;
  std::vector<Piece> pieces;
  std::uint64_t tiles = 0, bytes = 0;
};

/// Random tensors, some empty of alignment, laid one behind the other.
Laid lay(std::mt19937& random, std::size_t element, std::uint64_t tile, bool units_are_bytes) {
  Laid laid;
  const std::size_t count = 1 + random() % 40;
  laid.tensors.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t most = random() % 8 == 0 ? 5 * tile : 3000;
    const std::uint64_t units = 1 + random() % most;
    const std::size_t bytes = units_are_bytes ? units : units * element;
    laid.tensors.emplace_back(bytes + 32);
    auto* at = laid.tensors.back().data();
    at += (16 - reinterpret_cast<std::uintptr_t>(at) % 16) % 16;
    at += random() % 3 == 0 ? element * (random() % 4) % 16 : 0;
    for (std::size_t k = 0; k < bytes; ++k) at[k] = static_cast<unsigned char>(random());
    laid.pieces.push_back({at, laid.bytes, units, laid.tiles});
    laid.tiles += tiles_of(units, tile);
    laid.bytes += (bytes * 2 + 15) / 16 * 16;  // a wide buffer takes up to twice the bytes
  }
  return laid;
}

template <class F>
void run(unsigned blocks, F&& kernel) {
  for (unsigned b = 0; b < blocks; ++b)
    for (unsigned t = 0; t < 32; ++t) kernel(b, blocks, t, 32u);
}

}  // namespace

TEST_CASE("every tile belongs to the piece that it falls in") {
  std::mt19937 random(1);
  for (int round = 0; round < 50 / slower; ++round) {
    const Laid laid = lay(random, 1, tile_bytes, true);
    const auto count = static_cast<std::uint32_t>(laid.pieces.size());
    std::uint64_t t = 0;
    for (std::uint32_t p = 0; p < count; ++p)
      for (std::uint64_t begin = 0; begin < laid.pieces[p].units; begin += tile_bytes, ++t) {
        const Tile tile = tile_at(laid.pieces.data(), count, t, tile_bytes);
        REQUIRE(tile.piece == p);
        REQUIRE(tile.begin == begin);
        REQUIRE(tile.length == std::min(tile_bytes, laid.pieces[p].units - begin));
      }
    REQUIRE(t == laid.tiles);
  }
}

TEST_CASE("gather and scatter move every byte, and no other") {
  std::mt19937 random(2);
  for (int round = 0; round < 40 / slower; ++round) {
    Laid laid = lay(random, 4, tile_bytes, true);
    const auto count = static_cast<std::uint32_t>(laid.pieces.size());
    std::vector<unsigned char> buffer(laid.bytes + 16, 0xee), expected = buffer;
    auto* base = buffer.data() + (16 - reinterpret_cast<std::uintptr_t>(buffer.data()) % 16) % 16;
    const auto shift = base - buffer.data();
    for (const Piece& p : laid.pieces) std::memcpy(expected.data() + shift + p.at, p.tensor, p.units);
    const unsigned blocks = 1 + random() % 9;
    run(blocks, [&](unsigned b, unsigned bs, unsigned t, unsigned ts) {
      copy_tiles<true>(laid.pieces.data(), count, laid.tiles, base, b, bs, t, ts);
    });
    REQUIRE(buffer == expected);
    const auto before = laid.tensors;
    for (const Piece& p : laid.pieces) std::memset(p.tensor, 0, p.units);
    run(blocks, [&](unsigned b, unsigned bs, unsigned t, unsigned ts) {
      copy_tiles<false>(laid.pieces.data(), count, laid.tiles, base, b, bs, t, ts);
    });
    REQUIRE(laid.tensors == before);
  }
}

TEST_CASE_TEMPLATE("scaling kernels compute what a loop computes", Types, std::pair<float, float>,
                   std::pair<double, double>, std::pair<f16, f16>, std::pair<bf16, bf16>, std::pair<f16, float>,
                   std::pair<bf16, float>) {
  using T = typename Types::first_type;
  using B = typename Types::second_type;
  std::mt19937 random(3);
  for (int round = 0; round < 25 / slower; ++round) {
    Laid laid = lay(random, sizeof(T), tile_elements, false);
    for (Piece& p : laid.pieces)
      for (std::uint64_t i = 0; i < p.units; ++i)
        narrow(static_cast<decltype(wide(T{}))>(static_cast<int>(random() % 4000) - 2000) / 16,
               static_cast<T*>(p.tensor)[i]);
    const auto count = static_cast<std::uint32_t>(laid.pieces.size());
    std::vector<unsigned char> buffer(laid.bytes + 16);
    auto* base = buffer.data() + (16 - reinterpret_cast<std::uintptr_t>(buffer.data()) % 16) % 16;
    const double factor = 1.0 / static_cast<double>(1 + random() % 7);
    run(3, [&](unsigned b, unsigned bs, unsigned t, unsigned ts) {
      scale_tiles<true, T, B>(laid.pieces.data(), count, laid.tiles, base, factor, b, bs, t, ts);
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
    run(2, [&](unsigned b, unsigned bs, unsigned t, unsigned ts) {
      scale_tiles<false, T, B>(laid.pieces.data(), count, laid.tiles, base, 2, b, bs, t, ts);
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
