/// @file meeting_hub.h — gathers the ranks that want to be one world, and tells them who is in it.
///
/// Pure: messages in, messages out.  Hosts are numbers, as in the plan; ranks are the launch's.  The number of a world,
/// its epoch, is larger than that of every world before it.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "wire/messages/meeting_message.h"

namespace hvd::launcher {

/// One message for all of these hosts' daemons.
struct MeetingAnswer {
  std::vector<int> hosts;
  wire::MeetingMessage message;
};

class MeetingHub {
 public:
  using Answers = std::vector<MeetingAnswer>;

  /// @param host_of  [np] the host of each rank.  At first all of them are invited.
  explicit MeetingHub(std::vector<int> host_of);

  /// @p from a host's daemon.  What it says of ranks that are not its own is dropped.
  Answers receive(int from, const wire::MeetingMessage& message);
  /// The rank has died: the world that it was in last is over, and its other members are told.
  Answers revoke(int rank, const std::string& why);
  /// The rank will not come any more: whoever waits for it is told.  @p why  one line that names it
  Answers end(int rank, const std::string& why);
  /// From now on these are "all", in this order: who joins without naming others waits for them, and those who wait
  /// already do.  Who waits with "all" and is not invited is refused.
  Answers invite(std::vector<std::int32_t> ranks);

  // Of an elastic job:
  /// From now on who is not invited waits until it is; with nobody invited all wait.
  void hold_strangers() { holds_ = true; }
  /// A rank more, of this host: its number is the next one.  It is not invited.
  void add(int host);
  /// The rank is needed no more: it is refused now, or when it comes.
  Answers dismiss(int rank);
  /// Answers a rank's `expect`.  @p next  ranks of the launch in the order of the next world; the rank is one of them
  Answers tell_expected(const wire::MeetingMessage& asked, const std::vector<std::int32_t>& next) const;

 private:
  using Ranks = std::vector<std::int32_t>;
  struct JoinRequest {
    std::uint64_t token = 0;
    std::string text;
  };
  using Gathering = std::map<std::int32_t, JoinRequest>;  ///< those who have come

  Answers join(const wire::MeetingMessage& message);
  Answers withdraw(const wire::MeetingMessage& message);
  /// Why @p rank cannot join these; empty: it can.
  std::string nonsense(std::int32_t rank, const Ranks& ranks) const;
  const Ranks& participants(const Ranks& key) const { return key.empty() ? invited_ : key; }
  /// The world, once all of them are there.
  Answers complete(const Ranks& key);
  MeetingAnswer refuse(const Gathering& who, int code, const std::string& why) const;
  void forget(std::int32_t rank);

  std::vector<int> host_of_;
  std::vector<std::string> ended_;  ///< [np] why; empty: it may come
  Ranks invited_;
  std::map<Ranks, Gathering> gatherings_;  ///< by those whom the ranks have named; empty: all
  std::map<std::int32_t, Ranks> place_;    ///< of each rank that waits: the gathering's key
  std::set<std::int32_t> dismissed_;
  bool holds_ = false;
  std::uint64_t epoch_ = 0;
  std::map<std::int32_t, std::uint64_t> world_of_;  ///< epoch of the last world of each rank that was in one
};

}  // namespace hvd::launcher
