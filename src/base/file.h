/// @file file.h — owns file descriptors; reads and writes whole files.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "base/handle.h"

namespace hvd {

struct FdTraits {
  using type = int;
  static type null() noexcept { return -1; }
  static void abandon(type fd) noexcept;
};
/// Owns one file descriptor.
using Fd = Handle<FdTraits>;

/// The whole file.  Throws Error{usage} with where = @p path if the file cannot be read or is larger than
/// @p limit_bytes.
std::string read_file(const std::string& path, std::size_t limit_bytes);

/// The first line of a small file of /sys or /proc, without blanks at its ends.  Empty: it cannot be read.
std::string first_line(const std::string& path);

/// The whole text of a small file of /sys or /proc; empty when it cannot be read.
std::string whole_text(const std::string& path);

/// Writes all of @p bytes to @p fd.  In non-blocking mode it gives up after @p reader_may_rest_ms without a read.
/// False when the other end is gone or does not read, or the disk is full; errno has the reason.
bool write_all(int fd, std::string_view bytes, int reader_may_rest_ms = 10000);

/// The text of an errno value, such as "No such file or directory".  Thread: any.
std::string errno_text(int number);

}  // namespace hvd
