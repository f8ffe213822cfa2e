/// @file meeting_relay.h — the host daemon's part of meetings: ranks' messages go to hvdrun, its answers to ranks.
///
/// hvdrun sends an answer once to each host.  The answer lies in memory once, however many ranks read it.  Nothing here
/// waits for a rank.
#pragma once
#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/network/framed_socket.h"
#include "wire/messages/meeting_message.h"

namespace hvd::rank {

class MeetingRelay {
 public:
  /// @return the rank's end of a new socket.  Throws Error{unavailable}.
  Fd add(int rank);
  /// The rank's guard has ended.
  void remove(int rank) {
    std::erase_if(ranks_, [rank](const RankSocket& one) { return one.rank == rank; });
  }

  /// Adds the sockets to wait for.
  void add_to(std::vector<pollfd>& fds) const;
  /// Messages of ranks, for hvdrun, each with the number of its rank.  Sends waiting answers.
  std::vector<std::string> turn();
  /// @p body  of a message that came from hvdrun.  Throws Error{usage}.
  void hand_out(const std::string& body);

 private:
  struct RankSocket {
    int rank = -1;
    Fd socket{};  ///< empty: the rank has closed it, or has sent something else than a meeting's messages
    FrameInput in{wire::most_join_bytes};
    FrameOutput out{};
  };
  static void flush(RankSocket& to);
  static void take(RankSocket& from, std::vector<std::string>& messages);

  std::vector<RankSocket> ranks_;
};

}  // namespace hvd::rank
