/// @file guard_relay.h — the host daemon passes on what its guards and hvdrun say to each other
/// (wire/channel/relayed_frame.h).
///
/// In a job over several hosts each host has one connection to hvdrun: of 10 000 ranks only their hosts' daemons cost
/// it a handshake, and a guard needs no ZeroMQ.  Nothing here waits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "base/file.h"
#include "rank/streams/outbox.h"
#include "wire/channel/local_socket.h"

namespace hvd::rank {

class GuardRelay {
 public:
  /// @return the guard's end of a new connection.  Throws Error{unavailable}.
  Fd add(int rank);
  /// Readable when turn() has something to do; -1 before the first guard.
  int fd() const { return epoll_.get(); }

  /// Takes what the guards have said while there is room in @p outbox, and sends them what waits.  True when more was
  /// said than there is room for.
  bool turn(Outbox& outbox);
  /// @p body  of a relayed frame of hvdrun's
  void hand_out(const std::string& body);
  /// A guard is behind by so much that hvdrun's next words must wait, until turn() has done its work.
  bool is_full() const;
  /// All guards have ended, and what they said was taken.
  bool is_empty() const { return guards_.empty(); }
  /// hvdrun is gone, and for the guards that is the end of their connection.
  void hang_up() { guards_.clear(); }

 private:
  struct GuardEnd {
    GuardEnd(Fd fd, int epoll, std::uint64_t rank) : socket(std::move(fd), epoll, rank) {}
    wire::LocalSocket socket;
    std::deque<wire::Frame> queue{};  ///< what the socket did not take yet
    std::size_t queued_bytes = 0;
    void flush();
  };

  Fd epoll_;
  std::map<std::uint32_t, GuardEnd> guards_;  ///< by rank
};

}  // namespace hvd::rank
