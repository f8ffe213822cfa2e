/// @file slice_hash.h — a 64-bit hash of a part of a tensor, by which ranks compare equal results.
///
/// Four lanes take eight bytes each in turn: lane = (rotate(lane) ^ word) * odd.  Each such step is a bijection of the
/// lane and of the word, so a change of one word always changes the hash.  Other changes collide with a probability of
/// about 2^-64.  FNV-1a has the order of xor and multiply; xxHash has independent lanes and the rotation
/// (http://www.isthe.com/chongo/tech/comp/fnv, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).  The
/// hash is no protection against an attacker.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hvd {

namespace slice_hash_detail {

inline constexpr std::uint64_t odd = 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio, as in splitmix64

inline std::uint64_t step(std::uint64_t lane, std::uint64_t word) { return (std::rotl(lane, 29) ^ word) * odd; }

inline std::uint64_t word(const unsigned char* at, std::size_t bytes = sizeof(std::uint64_t)) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}

}  // namespace slice_hash_detail

/// The hash of @p bytes bytes.  @p at may have any alignment.
inline std::uint64_t slice_hash(const void* at, std::size_t bytes) {
  using namespace slice_hash_detail;
  const auto* p = static_cast<const unsigned char*>(at);
  std::uint64_t a = bytes, b = odd, c = ~odd, d = odd << 1, hash = 0;
  std::size_t left = bytes;
  for (; left >= 32; left -= 32, p += 32) {
    a = step(a, word(p));
    b = step(b, word(p + 8));
    c = step(c, word(p + 16));
    d = step(d, word(p + 24));
  }
  for (; left >= 8; left -= 8, p += 8) a = step(a, word(p));
  if (left > 0) a = step(a, word(p, left));
  for (const std::uint64_t lane : {a, b, c, d}) hash = step(hash, lane);
  hash = (hash ^ hash >> 32) * odd;
  return hash ^ hash >> 29;
}

}  // namespace hvd
