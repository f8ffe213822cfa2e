/// @file slice_hash.h — a 64-bit hash of a part of a tensor, by which ranks compare equal results.
///
/// Eight lanes take eight bytes each in turn, as in XXH3
/// (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).  Each word is added to the neighbour of its lane.
/// Each half of the word is mixed with a key.  The product of the halves is added to the word's own lane.  After each
/// KiB, every lane goes through a bijection.  So a change of one word always changes the hash.  Other changes collide
/// with a probability of about 2^-32 or less.  The rest, below one KiB, goes through the steps of FNV-1a with a
/// rotation.  The hash is the same on every CPU of the same byte order.  The hash does not protect against an attacker.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace hvd::ops {

namespace slice_hash_detail {

inline constexpr std::uint64_t odd = 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio, as in splitmix64
inline constexpr std::size_t lanes = 8, rows = 16, block_bytes = 8 * lanes * rows;
inline constexpr std::uint32_t odd_32 = 0x9E3779B1;  // a prime; XXH3 multiplies lanes with it too

/// Random keys, by splitmix64.  Row r of a block uses keys r … r + 7, the bijection the last eight.
inline constexpr auto keys = [] {
  std::array<std::uint64_t, rows + 2 * lanes> made{};
  std::uint64_t state = 0;
  for (std::uint64_t& key : made) {
    std::uint64_t z = state += odd;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    key = z ^ z >> 31;
  }
  return made;
}();

}  // namespace slice_hash_detail

/// Takes @p blocks blocks of 1 KiB into the @p lanes: [8].
using HashBlocksFn = void (*)(const void* at, std::size_t blocks, std::uint64_t* lanes);

/// The hash of @p bytes bytes.  @p at may have any alignment.
std::uint64_t slice_hash(const void* at, std::size_t bytes);

}  // namespace hvd::ops
