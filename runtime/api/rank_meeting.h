/// @file rank_meeting.h — this rank's side of a meeting, in which it finds its world through its host daemon.
///
/// See wire/messages/meeting_message.h.  One thread at a time.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/messages/meeting_message.h"

namespace hvd::api {

class RankMeeting {
 public:
  /// @p fd: HVD_MEETING_FD, which stays open.  nullopt: there is no host daemon, or the descriptor is another file by
  /// now.  Error{usage} if this process runs as another user than the host daemon.
  static std::optional<RankMeeting> of(int fd);
  /// True if this process is one of several ranks that hvdrun has started, and its script has removed HVD_MEETING_FD.
  static bool is_hidden();

  struct Gathered {
    std::uint64_t epoch = 0;
    int rank = 0;                                       ///< this rank's number in the world
    std::vector<wire::MeetingMessage::Member> members;  ///< [size] in the order of their ranks in the world
  };
  /// Waits until all of @p ranks (of the launch; empty: all) have called meet().  Each rank gets the @p text of every
  /// rank.
  /// @param forming  the epoch of the world that these ranks already form; 0: none.  The call throws peer_lost if that
  /// world is revoked.  Throws Error: timeout, with the missing ranks; peer_lost, with the ranks that will not come;
  /// usage; unavailable.
  Gathered meet(const std::vector<int>& ranks, const std::string& text, double limit_seconds,
                std::uint64_t forming = 0);
  struct Expected {
    int rank = 0;            ///< this rank's number
    std::vector<int> hosts;  ///< [size] host of each rank
  };
  /// For a rank that hvdrun has started while others train.  Returns the next world as hvdrun expects it, and waits for
  /// no other rank.  Throws Error: timeout; peer_lost; unavailable, if this rank is no longer needed.
  Expected expect(double limit_seconds);
  /// Reads one message without waiting.  Returns the reason if it revokes the world @p epoch or a later one, else
  /// nullopt.  Throws Error{peer_lost} if the daemon is gone.
  std::optional<std::string> revoked(std::uint64_t epoch);
  int fd() const { return fd_; }
  /// The world of this object's first meeting, counted from 1.  0: there was no meeting yet.
  std::uint64_t epoch() const { return epoch_; }

 private:
  explicit RankMeeting(int fd) : fd_(fd) {}
  void say(const wire::MeetingMessage& message);
  /// The next message until @p end_ns (now_ns()); nullopt: none came.  @p me: this rank's number in the launch.
  std::optional<wire::MeetingMessage> next(std::int64_t end_ns, int* me);
  /// The next message within @p left_ns, which shrinks.  Time in which this process was stopped does not count.
  std::optional<wire::MeetingMessage> next_within(std::int64_t& left_ns, int* me);

  int fd_;
  std::uint64_t epoch_ = 0;
};

}  // namespace hvd::api
