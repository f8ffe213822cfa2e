/// @file kernels.h — the work of the runtime's kernels, for one thread of one block.  Compiled for the device and for
/// the host.
///
/// The tensors of a batch are cut into tiles.  Tile t belongs to the piece whose range of tiles contains t: piece_of()
/// finds the piece by bisection.  A block takes the tiles t, t + grid, and so on.  So one launch serves many tensors,
/// and large tensors do not delay small ones.  The table of the pieces is a parameter of the kernel.  The driver copies
/// the table at the launch, or when a graph captures the launch.  The device reads the table from its constant cache.
/// The host build runs under the tests' fake driver, where tests compare the same arithmetic with a plain loop.
///
/// How many loads must be in flight?  A copy keeps the memory busy only if bandwidth times latency is in flight
/// (Little's law).  A copy on an H100 (3.35 TB/s) reads 1.7 TB/s.  At 0.8 µs latency under load, 1.3 MB must be in
/// flight.  That is 10 KB on each of 132 multiprocessors.  On an A100 (2.0 TB/s, 0.7 µs, 108 multiprocessors), it is
/// 6.5 KB each.  Each thread loads 4 times 16 bytes before it stores any: 16 KB for a block of 256 threads.  So two
/// blocks on a multiprocessor suffice, even if other kernels use the other six places.  (With 32 registers for each
/// thread, eight blocks fit.)  A tile is the 16 KB that a block has in flight at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/element_types.h"
#include "common/host_device.h"

namespace hvd::cuda {

inline constexpr std::uint32_t tile_bytes = 16384;    ///< size of a tile in a plain copy, whose unit is a byte
inline constexpr std::uint32_t tile_elements = 4096;  ///< size of a tile where the unit is an element
inline constexpr unsigned block_threads = 256;
inline constexpr unsigned in_flight = 4;  ///< loads that a thread issues before it stores

/// The pieces of one launch: tensors, or parts of tensors.  Units are bytes for plain copies, and elements for kernels
/// that compute.  A kernel's parameters may have 4 KB in all, on every GPU and driver.
struct Table {
  static constexpr std::uint32_t most = 200;
  void* tensor[most];
  std::uint32_t at[most];          ///< where the piece begins in the buffer, in lines of 16 bytes
  std::uint32_t units[most];       ///< length of the piece, > 0
  std::uint32_t first_tile[most];  ///< the number of tiles in all earlier pieces
  std::uint32_t count, tiles;      ///< the number of pieces, > 0; the number of tiles
};
static_assert(sizeof(Table) + sizeof(void*) + sizeof(double) <= 4096);

HVD_BOTH std::uint64_t tiles_of(std::uint64_t units, std::uint64_t tile) { return (units + tile - 1) / tile; }

/// The piece that contains tile @p t.  The result is the last piece that begins at tile @p t or before.
HVD_BOTH std::uint32_t piece_of(const Table& table, std::uint32_t t) {
  std::uint32_t low = 0, high = table.count;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (table.first_tile[middle] <= t)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/// The position of a tile in its piece, in units.
struct Tile {
  std::uint32_t piece, begin, length;
};
HVD_BOTH Tile tile_at(const Table& table, std::uint32_t t, std::uint32_t tile) {
  const std::uint32_t p = piece_of(table, t);
  const std::uint32_t begin = (t - table.first_tile[p]) * tile;
  const std::uint32_t left = table.units[p] - begin;
  return {p, begin, left < tile ? left : tile};
}

/// Tells the compiler that a pointer is to global memory, never to shared or local memory.  The compiler then needs no
/// generic accesses.
template <class T>
HVD_BOTH T* global(T* p) {
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isGlobal(p));
#endif
  return p;
}

// ---- copies

struct alignas(16) Line {
  std::uint32_t words[4];
};

/// Copies this thread's share of @p units units.  In each round the thread does all loads before the stores, which may
/// alias the loads.
template <class Unit>
HVD_BOTH void copy_units(unsigned char* to, const unsigned char* from, std::uint32_t units, unsigned thread,
                         unsigned threads) {
  auto* out = reinterpret_cast<Unit*>(to);
  const auto* in = reinterpret_cast<const Unit*>(from);
  std::uint32_t i = thread;
  for (; i + (in_flight - 1) * threads < units; i += in_flight * threads) {
    Unit x[in_flight];
    for (unsigned k = 0; k < in_flight; ++k) x[k] = in[i + k * threads];
    for (unsigned k = 0; k < in_flight; ++k) out[i + k * threads] = x[k];
  }
  for (; i < units; i += threads) out[i] = in[i];
}

/// Copies this thread's share, in the largest units to which both addresses are aligned.
HVD_BOTH void copy_share(unsigned char* to, const unsigned char* from, std::uint32_t bytes, unsigned thread,
                         unsigned threads) {
  const auto meet = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  std::uint32_t unit = 16;
  if (meet % 16 == 0) {
    copy_units<Line>(to, from, bytes / 16, thread, threads);
  } else if (meet % 4 == 0) {
    unit = 4;
    copy_units<std::uint32_t>(to, from, bytes / 4, thread, threads);
  } else if (meet % 2 == 0) {
    unit = 2;
    copy_units<std::uint16_t>(to, from, bytes / 2, thread, threads);
  } else {
    unit = 1;
    copy_units<unsigned char>(to, from, bytes, thread, threads);
  }
  for (std::uint32_t i = bytes / unit * unit + thread; i < bytes; i += threads) to[i] = from[i];
}

/// gather: copies tensors to the buffer; else copies the buffer to the tensors.
template <bool gather>
HVD_BOTH void copy_tiles(const Table& table, unsigned char* buffer, unsigned block, unsigned blocks, unsigned thread,
                         unsigned threads) {
  for (std::uint32_t t = block; t < table.tiles; t += blocks) {
    const Tile tile = tile_at(table, t, tile_bytes);
    unsigned char* tensor = global(static_cast<unsigned char*>(table.tensor[tile.piece]) + tile.begin);
    unsigned char* packed = global(buffer + std::uint64_t{table.at[tile.piece]} * 16 + tile.begin);
    if (gather)
      copy_share(packed, tensor, tile.length, thread, threads);
    else
      copy_share(tensor, packed, tile.length, thread, threads);
  }
}

// ---- hashes
//
// The hash of a piece is the sum of its 8-byte words, each mixed with its place.  So blocks and threads may add in any
// order.  The mixing is a bijection for each place, so a change of one word always changes the hash.  Other changes
// collide with a probability of about 2^-64.  The hash does not depend on the alignment.

/// The end of splitmix64.
HVD_BOTH std::uint64_t mixed(std::uint64_t word, std::uint64_t place) {
  std::uint64_t z = word + (place + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

/// The 8 bytes at @p from, read in units to which the address is aligned.
template <class Unit>
HVD_BOTH std::uint64_t word_at(const unsigned char* from) {
  const auto* in = reinterpret_cast<const Unit*>(from);
  std::uint64_t word = 0;
  for (unsigned k = 0; k < 8 / sizeof(Unit); ++k) word |= std::uint64_t{in[k]} << (8 * sizeof(Unit) * k);
  return word;
}

/// The sum of this thread's share of @p words words.  @p place: of the first word.
template <class Unit>
HVD_BOTH std::uint64_t hash_words(const unsigned char* from, std::uint32_t words, std::uint64_t place, unsigned thread,
                                  unsigned threads) {
  std::uint64_t sum = 0;
  std::uint32_t i = thread;
  for (; i + (in_flight - 1) * threads < words; i += in_flight * threads) {
    std::uint64_t x[in_flight];
    for (unsigned k = 0; k < in_flight; ++k) x[k] = word_at<Unit>(from + std::uint64_t{8} * (i + k * threads));
    for (unsigned k = 0; k < in_flight; ++k) sum += mixed(x[k], place + i + k * threads);
  }
  for (; i < words; i += threads) sum += mixed(word_at<Unit>(from + std::uint64_t{8} * i), place + i);
  return sum;
}

/// The sum of this thread's share of a tile.  The last word is filled up with zeros.
HVD_BOTH std::uint64_t hash_share(const unsigned char* from, std::uint32_t bytes, std::uint64_t place, unsigned thread,
                                  unsigned threads) {
  const std::uint32_t words = bytes / 8;
  const auto at = reinterpret_cast<std::uintptr_t>(from);
  const std::uint64_t sum = at % 8 == 0   ? hash_words<std::uint64_t>(from, words, place, thread, threads)
                            : at % 4 == 0 ? hash_words<std::uint32_t>(from, words, place, thread, threads)
                            : at % 2 == 0 ? hash_words<std::uint16_t>(from, words, place, thread, threads)
                                          : hash_words<unsigned char>(from, words, place, thread, threads);
  if (thread != 0 || bytes % 8 == 0) return sum;
  std::uint64_t last = 0;
  for (std::uint32_t i = words * 8; i < bytes; ++i) last |= std::uint64_t{from[i]} << (i % 8 * 8);
  return sum + mixed(last, place + words);
}

/// Adds the values of all threads of the block to *to.  All of its threads must call this function together.
HVD_BOTH void add_up(std::uint64_t* to, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
  if (threadIdx.x % 32 == 0) atomicAdd(reinterpret_cast<unsigned long long*>(to), value);
#else
  *to += value;
#endif
}

/// Adds the hash of each piece to the number at its place in the buffer.  A block adds once for all its tiles of a
/// piece.
HVD_BOTH void hash_tiles(const Table& table, unsigned char* buffer, unsigned block, unsigned blocks, unsigned thread,
                         unsigned threads) {
  for (std::uint32_t t = block; t < table.tiles;) {
    const std::uint32_t piece = piece_of(table, t);
    const std::uint32_t end = piece + 1 < table.count ? table.first_tile[piece + 1] : table.tiles;
    std::uint64_t sum = 0;
    for (; t < end; t += blocks) {
      const Tile tile = tile_at(table, t, tile_bytes);
      const unsigned char* from = global(static_cast<const unsigned char*>(table.tensor[piece]) + tile.begin);
      sum += hash_share(from, tile.length, tile.begin / 8, thread, threads);
    }
    add_up(reinterpret_cast<std::uint64_t*>(buffer + std::uint64_t{table.at[piece]} * 16), sum);
  }
}

// ---- numbers

template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T x[n];
};

/// to[i] = from[i] * factor, for this thread's share of @p packs packs of @p n elements.
template <int n, class To, class From>
HVD_BOTH void scale_packs(To* to, const From* from, std::uint32_t packs, double factor, unsigned thread,
                          unsigned threads) {
  // 8-bit floats need a factor in f64.  In f32, a factor like 1/3 is inexact, and many ties between two 8-bit floats
  // would no longer be ties.
  using Factor = std::conditional_t<sizeof(To) == 1, double, Wide<From>>;
  const auto f = static_cast<Factor>(factor);
  auto* out = reinterpret_cast<Pack<To, n>*>(to);
  const auto* in = reinterpret_cast<const Pack<From, n>*>(from);
  auto scaled = [f](const Pack<From, n>& x) {
    Pack<To, n> y;
    for (int k = 0; k < n; ++k) narrow(static_cast<Wide<From>>(static_cast<Factor>(wide(x.x[k])) * f), y.x[k]);
    return y;
  };
  std::uint32_t i = thread;
  for (; i + (in_flight - 1) * threads < packs; i += in_flight * threads) {
    Pack<From, n> x[in_flight];
    for (unsigned k = 0; k < in_flight; ++k) x[k] = in[i + k * threads];
    for (unsigned k = 0; k < in_flight; ++k) out[i + k * threads] = scaled(x[k]);
  }
  for (; i < packs; i += threads) out[i] = scaled(in[i]);
}

/// to[i] = from[i] * factor, for this thread's share.
template <class To, class From>
HVD_BOTH void scale_share(To* to, const From* from, std::uint32_t elements, double factor, unsigned thread,
                          unsigned threads) {
  constexpr int n = 16 / static_cast<int>(sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
  std::uint32_t done = 0;
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(Pack<To, n>) == 0 &&
      reinterpret_cast<std::uintptr_t>(from) % sizeof(Pack<From, n>) == 0) {
    scale_packs<n>(to, from, elements / n, factor, thread, threads);
    done = elements / n * n;
  }
  scale_packs<1>(to + done, from + done, elements - done, factor, thread, threads);
}

/// The tensors are of type T, the buffer is of type B.  gather: B = T * factor; else T = B * factor.
template <bool gather, class T, class B>
HVD_BOTH void scale_tiles(const Table& table, unsigned char* buffer, double factor, unsigned block, unsigned blocks,
                          unsigned thread, unsigned threads) {
  for (std::uint32_t t = block; t < table.tiles; t += blocks) {
    const Tile tile = tile_at(table, t, tile_elements);
    T* tensor = global(static_cast<T*>(table.tensor[tile.piece]) + tile.begin);
    B* packed = global(reinterpret_cast<B*>(buffer + std::uint64_t{table.at[tile.piece]} * 16) + tile.begin);
    if (gather)
      scale_share(packed, tensor, tile.length, factor, thread, threads);
    else
      scale_share(tensor, packed, tile.length, factor, thread, threads);
  }
}

/// The kernels that compute: X(dtype of the tensors, dtype of the buffer).  Example of names: hvd_gather_f16_f32,
/// hvd_scatter_f16_f32.
#define HVD_SCALE_KERNELS(X) \
  X(f32, f32)                \
  X(f64, f64)                \
  X(f16, f16)                \
  X(bf16, bf16)              \
  X(f16, f32)                \
  X(bf16, f32)               \
  X(f8e4m3, f32)             \
  X(f8e5m2, f32)

}  // namespace hvd::cuda
