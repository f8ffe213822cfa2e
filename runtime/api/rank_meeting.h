/// @file rank_meeting.h — this rank's side of a meeting: how it finds its world by way of its host daemon.
///
/// See wire/messages/meeting_message.h.  Thread: one at a time.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/messages/meeting_message.h"

namespace hvd::api {

class RankMeeting {
 public:
  /// @p fd: HVD_MEETING_FD.  nullopt: there is no host daemon, or the number is something else's by now.
  static std::optional<RankMeeting> of(int fd);

  struct Gathered {
    std::uint64_t epoch = 0;
    int rank = 0;                                       ///< this one, in the world
    std::vector<wire::MeetingMessage::Member> members;  ///< [size] by their ranks in the world
  };
  /// Waits until all of @p ranks (of the launch; empty: all) have called it.  Each gets what each has said.
  /// Throws Error: timeout, naming who is missing; peer_lost, naming who will not come; usage, unavailable.
  /// @p forming: the world that it is about, where there is one already: if that is revoked, peer_lost.
  Gathered meet(const std::vector<int>& ranks, const std::string& text, double limit_seconds,
                std::uint64_t forming = 0);
  struct Expected {
    int rank = 0;            ///< this one's
    std::vector<int> hosts;  ///< [size] by rank
  };
  /// What hvdrun expects of the next world, where it has started this rank while others train.  Waits for no other
  /// rank. Throws Error: timeout, peer_lost; unavailable, where this rank is needed no more.
  Expected expect(double limit_seconds);
  /// There is something to read: why the world @p epoch is over, if it says that.  Throws Error{peer_lost} where the
  /// daemon is gone.
  std::optional<std::string> revoked(std::uint64_t epoch);
  int fd() const { return fd_; }
  /// Of the first meeting: which world it was, from 1 on.  0: there has been none.
  std::uint64_t epoch() const { return epoch_; }

 private:
  explicit RankMeeting(int fd) : fd_(fd) {}
  void say(const wire::MeetingMessage& message);
  /// The next message; nullopt: none came in time.
  std::optional<wire::MeetingMessage> next(std::int64_t end_ns, int* me);

  int fd_;
  std::uint64_t epoch_ = 0;
};

}  // namespace hvd::api
