/// @file gzip.h — writes and reads gzip's format.  The system's zlib is loaded at the first use.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace hvd {

/// Makes gzip members.  A file may consist of several members; unpacked, their contents follow one another.  A member
/// can be unpacked without the members after it.  Not thread-safe: one thread at a time.
class GzipMembers {
 public:
  /// Throws Error{unavailable} if zlib is missing.
  GzipMembers();
  ~GzipMembers();
  GzipMembers(const GzipMembers&) = delete;
  GzipMembers& operator=(const GzipMembers&) = delete;

  /// @p content as one member.  The result is valid until the next call.
  std::string_view member(std::string_view content);

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
  std::string text_;
};

/// Unpacks the file @p from into the file @p to, until the first damaged byte.  Both are descriptors at the beginning
/// of their files.  Throws Error{unavailable} if zlib is missing or @p to cannot be written.
void gunzip(int from, int to);

}  // namespace hvd
