/// @file outlet.h — hvdrun's own stdout or stderr, written to without ever blocking the event loop.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace hvd::launcher {

/// Keeps what cannot be written yet.  The descriptor stays blocking (it is shared with our parent): after poll() says
/// writable, a pipe or terminal takes at least one small piece at once.
class Outlet {
 public:
  explicit Outlet(int fd);

  int fd() const { return fd_; }
  bool is_terminal() const { return terminal_; }
  void put(std::string_view bytes);
  std::size_t pending_bytes() const { return pending_.size() - written_; }
  /// Writes what can be written without waiting.
  void flush_ready();
  /// Writes everything, waiting at most @p limit_ms for a reader that does not read.
  void flush_all(int limit_ms);
  /// Why nothing can be written any more: EPIPE, the reader has gone; ENOSPC; what is put from then on is dropped.
  /// 0: it can.
  int closed_by() const { return closed_by_; }

 private:
  bool write_piece();

  int fd_;
  bool terminal_;
  bool never_waits_;  ///< a regular file
  int closed_by_ = 0;
  std::string pending_;
  std::size_t written_ = 0;  ///< of pending_
};

}  // namespace hvd::launcher
