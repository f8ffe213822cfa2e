/// @file unproved.h — connections that a library has accepted and whose other end has not proved the job's key.
///
/// A library such as libzmq keeps each of them until its limit on handshakes is over.  Where descriptors are scarce
/// some are ended before, so that strangers who say nothing keep nobody else out.
#pragma once
#include <sys/types.h>

#include <deque>
#include <mutex>
#include <string>

namespace hvd::wire {

/// Thread: any.
class Unproved {
 public:
  /// @p has_proved: asked of a connection that still stands.
  explicit Unproved(bool (*has_proved)(int connection)) : has_proved_(has_proved) {}

  /// A TCP connection has been accepted; others are left alone.
  void add(int connection);
  /// Shuts some down, of the address from which most come, the oldest first: the library then finds their end and
  /// closes them.  To be called by the thread that closes them, so that their descriptors are theirs meanwhile.
  void end_some();

 private:
  struct Guest {
    int fd;
    ino_t inode;
    std::string source;
  };
  void forget_others();

  bool (*const has_proved_)(int connection);
  std::mutex mutex_;
  std::deque<Guest> guests_;  ///< the oldest first; some are gone, or have proved the key
};

}  // namespace hvd::wire
