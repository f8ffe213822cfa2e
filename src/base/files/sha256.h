/// @file sha256.h — SHA-256 (FIPS 180-4).  The digest identifies a payload.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hvd {

/// Takes the bytes in any number of add() calls; then hex() returns the digest.
class Sha256 {
 public:
  void add(std::string_view bytes);
  /// The digest as 64 lower-case hexadecimal digits.  Call once.
  std::string hex();

 private:
  void block(const unsigned char* p);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> rest_{};
  std::size_t rest_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

std::string sha256_hex(std::string_view bytes);

}  // namespace hvd
