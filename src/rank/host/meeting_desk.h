/// @file meeting_desk.h — the host daemon's part of meetings: passes on what its ranks say, and hands them the answers.
///
/// An answer comes once a host, and lies in memory once, however many ranks read it.  Nothing here waits for a rank.
#pragma once
#include <poll.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace hvd::rank {

class MeetingDesk {
 public:
  /// @return the rank's end of a new socket.  Throws Error{unavailable}.
  Fd add(int rank);
  /// The rank's guard has ended.
  void remove(int rank) {
    std::erase_if(seats_, [rank](const Seat& seat) { return seat.rank == rank; });
  }

  /// What to wait for.
  void add_to(std::vector<pollfd>& fds) const;
  /// Messages of ranks, for hvdrun, each with the number of its rank.  Sends what the sockets take.
  std::vector<std::string> turn();
  /// @p body came from hvdrun.  Throws Error{usage}.
  void hand_out(const std::string& body);

 private:
  struct OutPiece {
    std::shared_ptr<const std::string> bytes;
    std::size_t sent = 0;
  };
  struct Seat {
    int rank = -1;
    Fd socket{};  ///< empty: the rank has closed it, or talks nonsense
    std::string in{};
    std::deque<OutPiece> out{};
  };
  static void read(Seat& seat);
  static void write(Seat& seat);
  static void take(Seat& seat, std::vector<std::string>& messages);

  std::vector<Seat> seats_;
};

}  // namespace hvd::rank
