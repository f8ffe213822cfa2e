/// @file copy_table.h — the host side of a batched copy.  Converts any number of pieces, of any size, to the tables
/// that the kernels take.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "common/types.h"
#include "gpu/cuda/kernels.h"

namespace hvd::cuda {

/// A tensor, and its place in the buffer.
struct Piece {
  void* tensor;
  std::uint64_t at;     ///< offset in the buffer in bytes, a multiple of 16
  std::uint64_t units;  ///< length in units of the kernel: bytes or elements
};

/// The units of a kernel.
struct Units {
  std::uint64_t in_tensor, in_buffer;  ///< bytes of a unit
  std::uint32_t tile;                  ///< units of a tile
};
inline constexpr Units byte_units{1, 1, tile_bytes};
/// The units of the hash kernel.  If fill() cuts a piece into parts, the hashes of the parts are added to the same
/// number.
inline constexpr Units hash_units{1, 0, tile_bytes};
/// [kernel] In the order of HVD_SCALE_KERNELS.
#define HVD_UNITS(T, B) {sizeof(element::T), sizeof(element::B), tile_elements},
inline constexpr Units scale_units[] = {HVD_SCALE_KERNELS(HVD_UNITS)};
#undef HVD_UNITS
/// Returns the index in HVD_SCALE_KERNELS of the kernel for these dtypes.  Throws Error{internal} if no kernel exists.
inline std::size_t scale_row(DType tensor, DType buffer) {
#define HVD_ROW(T, B) {DType::T, DType::B},
  static constexpr struct { DType tensor, buffer; } rows[] = {HVD_SCALE_KERNELS(HVD_ROW)};
#undef HVD_ROW
  for (std::size_t i = 0; i < std::size(rows); ++i)
    if (rows[i].tensor == tensor && rows[i].buffer == buffer) return i;
  throw Error(Code::internal, name_of(tensor), std::string("no kernel scales it into ") + name_of(buffer));
}

/// The position that fill() has reached in the pieces.
struct Filled {
  std::size_t piece = 0;
  std::uint64_t units = 0;  ///< units of `piece` that are in a table already
};

/// Fills @p table with @p pieces, beginning at @p from, until the table is full.  Returns the position of the next
/// piece.  A piece of more than @p most_units is cut, since the table's numbers have 32 bits.  @p most_units must be a
/// multiple of the tile.
inline Filled fill(Table& table, std::span<const Piece> pieces, const Units& units, Filled from,
                   std::uint64_t most_units = 1u << 31) {
  table.count = table.tiles = 0;
  const std::uint64_t most_tiles = 1u << 31;
  while (from.piece < pieces.size() && table.count < Table::most) {
    const Piece& p = pieces[from.piece];
    const std::uint64_t n = std::min(p.units - from.units, most_units);
    const std::uint64_t tiles = tiles_of(n, units.tile);
    if (table.tiles + tiles > most_tiles) break;
    if (n > 0) {
      const std::uint32_t row = table.count++;
      table.tensor[row] = static_cast<unsigned char*>(p.tensor) + from.units * units.in_tensor;
      table.at[row] = static_cast<std::uint32_t>((p.at + from.units * units.in_buffer) / 16);
      table.units[row] = static_cast<std::uint32_t>(n);
      table.first_tile[row] = table.tiles;
      table.tiles += static_cast<std::uint32_t>(tiles);
    }
    from.units += n;
    if (from.units == p.units) from = {from.piece + 1, 0};
  }
  return from;
}

}  // namespace hvd::cuda
