/// @file fnv1a.h — the hash FNV-1a, 64 bits: all processes compute the same number.
#pragma once
#include <cstdint>
#include <string_view>

namespace hvd {

constexpr std::uint64_t fnv1a_start = 14695981039346656037u;

/// The hash of the bytes in @p hash and then @p byte.  Wider values are allowed; the hash is then not FNV-1a's.
constexpr std::uint64_t fnv1a_step(std::uint64_t hash, std::uint64_t byte) { return (hash ^ byte) * 1099511628211u; }

constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = fnv1a_start) {
  for (const char c : text) hash = fnv1a_step(hash, static_cast<std::uint8_t>(c));
  return hash;
}

}  // namespace hvd
