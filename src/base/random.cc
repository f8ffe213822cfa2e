#include "random.h"

#include <sys/random.h>

#include <cerrno>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace hvd {

// std::random_device is not used: a static libstdc++ calls arc4random(), which needs a newer C library.
void fill_randomly(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::getrandom(bytes.data(), bytes.size(), 0);
    if (n > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    else if (errno != EINTR)
      throw Error(Code::unavailable, "getrandom", errno_text(errno));
  }
}

std::string random_letters(std::size_t count) {
  std::vector<std::byte> bytes(count);
  fill_randomly(bytes);
  std::string letters;
  for (const std::byte byte : bytes)
    letters += random_alphabet[static_cast<std::size_t>(byte) % random_alphabet.size()];
  return letters;
}

}  // namespace hvd
