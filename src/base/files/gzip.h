/// @file gzip.h — gzip's format, by the system's zlib, which is loaded when it is needed.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace hvd {

/// Makes members: a file of several, one behind the other, is the file of all their contents, and each is whole as soon
/// as it is written.  Thread: one at a time.
class GzipMembers {
 public:
  /// Throws Error{unavailable} where there is no zlib.
  GzipMembers();
  ~GzipMembers();
  GzipMembers(const GzipMembers&) = delete;
  GzipMembers& operator=(const GzipMembers&) = delete;

  /// Valid until the next call.
  std::string_view member(std::string_view content);

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
  std::string text_;
};

/// Unpacks the file @p from into @p to, as far as @p from is undamaged.  Both are descriptors at their beginning.
/// Throws Error{unavailable} where there is no zlib, or no room.
void gunzip(int from, int to);

}  // namespace hvd
