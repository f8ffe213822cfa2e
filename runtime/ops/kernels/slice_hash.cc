#include "ops/kernels/slice_hash.h"

#include <cstring>
#include <initializer_list>

#include "ops/kernels/cpu_kernels.h"

namespace hvd::ops {
namespace slice_hash_detail {  // a unity build joins files: other files have functions of these names
namespace {

std::uint64_t step(std::uint64_t lane, std::uint64_t word) { return (std::rotl(lane, 29) ^ word) * odd; }

std::uint64_t word(const unsigned char* at, std::size_t bytes = sizeof(std::uint64_t)) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}

std::uint64_t hash_of(const void* at, std::size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(at);
  std::uint64_t a = bytes, b = odd, c = ~odd, d = odd << 1, hash = 0;
  std::size_t left = bytes;
  if (const std::size_t blocks = bytes / block_bytes; blocks > 0) {
    static const HashBlocksFn take = hash_blocks();
    std::uint64_t lane[lanes];
    for (std::size_t i = 0; i < lanes; ++i) lane[i] = keys[i] * odd_32;
    take(p, blocks, lane);
    for (std::size_t i = 0; i < lanes; i += 4) {
      a = step(a, lane[i]);
      b = step(b, lane[i + 1]);
      c = step(c, lane[i + 2]);
      d = step(d, lane[i + 3]);
    }
    p += blocks * block_bytes;
    left -= blocks * block_bytes;
  }
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

}  // namespace
}  // namespace slice_hash_detail

std::uint64_t slice_hash(const void* at, std::size_t bytes) { return slice_hash_detail::hash_of(at, bytes); }

}  // namespace hvd::ops
