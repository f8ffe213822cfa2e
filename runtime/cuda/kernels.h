/// @file kernels.h — what our kernels do, for one thread of one block; compiled for the device and for the host.
///
/// A batch's tensors are cut into tiles; tile t belongs to the piece whose tiles
/// it falls in (found by bisection), and blocks take tiles t, t + grid, …  So one
/// launch serves any number of tensors, and large ones do not hold up small ones.
/// The host build runs under the fake driver of the tests, where the very same
/// arithmetic is compared with a plain loop.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define HVD_BOTH __host__ __device__ inline
#else
#define HVD_BOTH inline
#endif

namespace hvd::cuda {

/// One tensor of a batch.  Units are bytes for plain copies, elements where a kernel computes.
struct Piece {
  void* tensor;
  std::uint64_t at;          ///< byte in the buffer where it begins, a multiple of 16
  std::uint64_t units;       ///< its length, > 0
  std::uint64_t first_tile;  ///< how many tiles the pieces before it have
};

inline constexpr std::uint64_t tile_bytes = 32768;    ///< units of a tile where the unit is a byte
inline constexpr std::uint64_t tile_elements = 8192;  ///< and where it is an element
inline constexpr unsigned block_threads = 256;

HVD_BOTH std::uint64_t tiles_of(std::uint64_t units, std::uint64_t tile) { return (units + tile - 1) / tile; }

/// The piece that tile @p t is in: the last whose first tile is not behind it.  count > 0.
HVD_BOTH std::uint32_t piece_of(const Piece* pieces, std::uint32_t count, std::uint64_t t) {
  std::uint32_t low = 0, high = count;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (pieces[middle].first_tile <= t)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/// Where a tile lies in its piece, in units.
struct Tile {
  std::uint32_t piece;
  std::uint64_t begin, length;
};
HVD_BOTH Tile tile_at(const Piece* pieces, std::uint32_t count, std::uint64_t t, std::uint64_t tile) {
  const std::uint32_t p = piece_of(pieces, count, t);
  const std::uint64_t begin = (t - pieces[p].first_tile) * tile;
  const std::uint64_t left = pieces[p].units - begin;
  return {p, begin, left < tile ? left : tile};
}

// ---- copies

struct alignas(16) Line {
  std::uint32_t words[4];
};

/// This thread's share of a copy: lines of 16 bytes where both ends allow it, else words, else bytes.
HVD_BOTH void copy_share(unsigned char* to, const unsigned char* from, std::uint64_t bytes, unsigned thread,
                         unsigned threads) {
  const auto meet = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  std::uint64_t done = 0;
  if (meet % 16 == 0) {
    const std::uint64_t n = bytes / 16;
    for (std::uint64_t i = thread; i < n; i += threads)
      reinterpret_cast<Line*>(to)[i] = reinterpret_cast<const Line*>(from)[i];
    done = n * 16;
  } else if (meet % 4 == 0) {
    const std::uint64_t n = bytes / 4;
    for (std::uint64_t i = thread; i < n; i += threads)
      reinterpret_cast<std::uint32_t*>(to)[i] = reinterpret_cast<const std::uint32_t*>(from)[i];
    done = n * 4;
  }
  for (std::uint64_t i = done + thread; i < bytes; i += threads) to[i] = from[i];
}

/// gather: tensors → buffer; else buffer → tensors.
template <bool gather>
HVD_BOTH void copy_tiles(const Piece* pieces, std::uint32_t count, std::uint64_t tiles, unsigned char* buffer,
                         unsigned block, unsigned blocks, unsigned thread, unsigned threads) {
  for (std::uint64_t t = block; t < tiles; t += blocks) {
    const Tile tile = tile_at(pieces, count, t, tile_bytes);
    unsigned char* tensor = static_cast<unsigned char*>(pieces[tile.piece].tensor) + tile.begin;
    unsigned char* packed = buffer + pieces[tile.piece].at + tile.begin;
    if (gather)
      copy_share(packed, tensor, tile.length, thread, threads);
    else
      copy_share(tensor, packed, tile.length, thread, threads);
  }
}

// ---- numbers

struct f16 {
  std::uint16_t bits;
};
struct bf16 {
  std::uint16_t bits;
};

template <class To, class From>
HVD_BOTH To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

HVD_BOTH float wide(float x) { return x; }
HVD_BOTH double wide(double x) { return x; }
HVD_BOTH float wide(bf16 x) { return bits_as<float>(static_cast<std::uint32_t>(x.bits) << 16); }
HVD_BOTH float wide(f16 x) {
#if defined(__CUDA_ARCH__)
  return __half2float(bits_as<__half>(x.bits));
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t exponent = x.bits >> 10 & 31u, fraction = x.bits & 1023u;
  if (exponent == 31) return bits_as<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return bits_as<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float tiny = static_cast<float>(fraction) * 0x1p-24f;  // subnormal, or zero
  return sign ? -tiny : tiny;
#endif
}

HVD_BOTH void narrow(float x, float& to) { to = x; }
HVD_BOTH void narrow(double x, double& to) { to = x; }
/// Rounds to the nearest, ties to even; a NaN stays one.
HVD_BOTH void narrow(float x, bf16& to) {
  const auto bits = bits_as<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    to.bits = static_cast<std::uint16_t>(bits >> 16 | 64u);
  else
    to.bits = static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
HVD_BOTH void narrow(float x, f16& to) {
#if defined(__CUDA_ARCH__)
  to.bits = bits_as<std::uint16_t>(__float2half_rn(x));
#else
  const auto bits = bits_as<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) {
    to.bits = sign | 0x7e00u;
  } else if (size >= 0x47800000u) {  // 65536 and more
    to.bits = sign | 0x7c00u;
  } else if (size < 0x38800000u) {  // below the smallest normal number: adding aligns the fraction, and rounds
    const float shifted = bits_as<float>(size) + 0.5f;
    to.bits = static_cast<std::uint16_t>(sign | (bits_as<std::uint32_t>(shifted) - 0x3f000000u));
  } else {
    const std::uint32_t rounded = size + 0xfffu + (size >> 13 & 1u);
    to.bits = static_cast<std::uint16_t>(sign | (rounded - 0x38000000u) >> 13);
  }
#endif
}

template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T x[n];
};

/// to[i] = from[i] * factor, this thread's share.
template <class To, class From>
HVD_BOTH void scale_share(To* to, const From* from, std::uint64_t elements, double factor, unsigned thread,
                          unsigned threads) {
  using Wide = decltype(wide(From{}));
  const Wide f = static_cast<Wide>(factor);
  constexpr int n = 16 / static_cast<int>(sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
  std::uint64_t done = 0;
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(Pack<To, n>) == 0 &&
      reinterpret_cast<std::uintptr_t>(from) % sizeof(Pack<From, n>) == 0) {
    for (std::uint64_t i = thread; i < elements / n; i += threads) {
      const Pack<From, n> in = reinterpret_cast<const Pack<From, n>*>(from)[i];
      Pack<To, n> out;
      for (int k = 0; k < n; ++k) narrow(wide(in.x[k]) * f, out.x[k]);
      reinterpret_cast<Pack<To, n>*>(to)[i] = out;
    }
    done = elements / n * n;
  }
  for (std::uint64_t i = done + thread; i < elements; i += threads) narrow(wide(from[i]) * f, to[i]);
}

/// Tensors of T, a buffer of B.  gather: B = T * factor; else T = B * factor.
template <bool gather, class T, class B>
HVD_BOTH void scale_tiles(const Piece* pieces, std::uint32_t count, std::uint64_t tiles, unsigned char* buffer,
                          double factor, unsigned block, unsigned blocks, unsigned thread, unsigned threads) {
  for (std::uint64_t t = block; t < tiles; t += blocks) {
    const Tile tile = tile_at(pieces, count, t, tile_elements);
    T* tensor = static_cast<T*>(pieces[tile.piece].tensor) + tile.begin;
    B* packed = reinterpret_cast<B*>(buffer + pieces[tile.piece].at) + tile.begin;
    if (gather)
      scale_share(packed, tensor, tile.length, factor, thread, threads);
    else
      scale_share(tensor, packed, tile.length, factor, thread, threads);
  }
}

/// The kernels that compute: X(tensors' type, buffer's type).  Their names: hvd_gather_f16_f32, hvd_scatter_f16_f32.
#define HVD_SCALE_KERNELS(X) \
  X(float, float, f32_f32)   \
  X(double, double, f64_f64) \
  X(f16, f16, f16_f16)       \
  X(bf16, bf16, bf16_bf16)   \
  X(f16, float, f16_f32)     \
  X(bf16, float, bf16_f32)

}  // namespace hvd::cuda
