/// @file outlet.h — hvdrun's stdout or stderr: writing to it never blocks the event loop.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace hvd::launcher {

/// Keeps bytes that cannot be written yet.  The descriptor stays blocking, because our parent shares it.  When poll()
/// says writable, a pipe or terminal takes at least one small piece at once.
class Outlet {
 public:
  explicit Outlet(int fd);

  int fd() const { return fd_; }
  bool is_terminal() const { return terminal_; }
  void put(std::string_view bytes);
  std::size_t pending_bytes() const { return pending_.size() - written_; }
  /// Writes as much as is possible without waiting.
  void flush_ready();
  /// Writes all bytes.  Waits at most @p limit_ms for a reader that does not read.
  void flush_all(int limit_ms);
  /// errno of the write that failed for good: EPIPE (the reader has gone), ENOSPC.  0: none.  After a failure new bytes
  /// are dropped.
  int closed_by() const { return closed_by_; }

 private:
  bool write_piece();

  int fd_;
  bool terminal_;
  bool never_waits_;  ///< a regular file
  int closed_by_ = 0;
  std::string pending_;
  std::size_t written_ = 0;  ///< bytes of pending_ that are written
};

}  // namespace hvd::launcher
