#include "base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd {
namespace {

/// Waits until a pipe in non-blocking mode has room.  False: errno is ETIME.
bool wait_for_reader(int fd, int limit_ms) {
  pollfd ready{fd, POLLOUT, 0};
  if (::poll(&ready, 1, limit_ms) != 0) return true;
  errno = ETIME;
  return false;
}

}  // namespace

void FdTraits::abandon(type fd) noexcept { ::close(fd); }

std::string errno_text(int number) {
  const std::string text = std::generic_category().message(number);
  if (number == ETIME) return "its reader does not read";
  return number == EFBIG ? text + " (see ulimit -f)" : text;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(trim(line));
}

std::string whole_text(const std::string& path) {
  std::string text;
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char piece[4096];
  for (ssize_t n; fd && ((n = ::read(fd.get(), piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR));)
    if (n > 0) text.append(piece, static_cast<std::size_t>(n));
  return text;
}

std::string read_file(const std::string& path, std::size_t limit_bytes) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw Error(Code::usage, path, errno_text(errno));
  struct stat about {};
  if (::fstat(fd.get(), &about) == 0 && S_ISDIR(about.st_mode))
    throw Error(Code::usage, path, "is a folder, not a file");
  std::string bytes;
  if (S_ISREG(about.st_mode)) bytes.reserve(std::min(static_cast<std::size_t>(about.st_size), limit_bytes));
  std::string piece(64 << 10, '\0');  // not on the stack, which is as small as `ulimit -s` says
  for (;;) {
    const ssize_t n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(Code::usage, path, errno_text(errno));
    if (n == 0) return bytes;
    bytes.append(piece, 0, static_cast<std::size_t>(n));
    if (bytes.size() > limit_bytes) throw Error(Code::usage, path, formatted("larger than {} bytes", limit_bytes));
  }
}

bool write_all(int fd, std::string_view bytes, int reader_may_rest_ms) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && (errno == EINTR || (errno == EAGAIN && wait_for_reader(fd, reader_may_rest_ms)))) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace hvd
