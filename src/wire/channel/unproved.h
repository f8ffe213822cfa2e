/// @file unproved.h — accepted connections of a library, as long as the other end has not proved the job's key.
///
/// A library such as libzmq keeps each such connection until the limit of its handshake.  When descriptors are scarce,
/// some are ended earlier, so that silent strangers do not keep guards out.
#pragma once
#include <sys/types.h>

#include <deque>
#include <mutex>
#include <string>

namespace hvd::wire {

/// Thread: any.
class Unproved {
 public:
  /// @p has_proved  whether the other end of an open connection has proved the key
  explicit Unproved(bool (*has_proved)(int connection)) : has_proved_(has_proved) {}

  /// A connection was accepted.  Ignores connections that are not TCP.
  void add(int connection);
  /// Shuts some connections down: the oldest of the address with most of them.  The library then finds their end and
  /// closes them.  Must be called by the thread that closes them, so that no descriptor gets another meaning meanwhile.
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
  std::deque<Guest> guests_;  ///< the oldest first; some may be closed, or have proved the key
};

}  // namespace hvd::wire
