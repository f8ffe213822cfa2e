/// @file guard_relay.h — the host daemon's relay of frames between its guards and hvdrun
/// (wire/channel/relayed_frame.h).
///
/// In a job over several hosts each host has one connection to hvdrun.  So hvdrun makes one handshake for each host,
/// not for each rank, and a guard needs no ZeroMQ.  Nothing here waits.
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

  /// Moves the guards' frames into @p outbox while it has room, and sends the guards their waiting frames.  True when
  /// frames of guards are left.
  bool turn(Outbox& outbox);
  /// Passes a frame of hvdrun on to its guard.  @p body  of a relayed frame
  void hand_out(const std::string& body);
  /// True if a guard has 4 MiB of unread frames. hvdrun's next frames must then wait until turn() has sent some.
  bool is_full() const;
  /// True if all guards have ended, and all their frames were taken.
  bool is_empty() const { return guards_.empty(); }
  /// Call it when hvdrun is gone.  Ends the guards' connections.
  void hang_up() { guards_.clear(); }

 private:
  struct GuardEnd {
    GuardEnd(Fd fd, int epoll, std::uint64_t rank) : socket(std::move(fd), epoll, rank) {}
    wire::LocalSocket socket;
    std::deque<wire::Frame> queue{};  ///< frames that the socket has not taken yet
    std::size_t queued_bytes = 0;
    void flush();
  };

  Fd epoll_;
  std::map<std::uint32_t, GuardEnd> guards_;  ///< by rank
};

}  // namespace hvd::rank
