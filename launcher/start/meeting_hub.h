/// @file meeting_hub.h — gathers the ranks that want to be one world, and tells each the world's members.
///
/// Pure: messages in, messages out.  Hosts are numbers, as in the plan.  Ranks are those of the launch.  A world's
/// number, its epoch, is larger than the epochs of all earlier worlds.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "wire/messages/meeting_message.h"

namespace hvd::launcher {

/// One message for the daemons of these hosts.
struct MeetingAnswer {
  std::vector<int> hosts;
  wire::MeetingMessage message;
};

class MeetingHub {
 public:
  using Answers = std::vector<MeetingAnswer>;

  /// @param host_of  [np] the host of each rank.  At first all ranks are invited.
  explicit MeetingHub(std::vector<int> host_of);

  /// Takes a message from a host's daemon.  Drops a message about a rank of another host.
  Answers receive(int from, const wire::MeetingMessage& message);
  /// Call it when the rank has died.  Ends its last world, and notifies the other members of that world.
  Answers revoke(int rank, const std::string& why);
  /// Call it when the rank will not join any more.  Notifies the ranks that wait for it.  @param why  one line that
  /// names the rank
  Answers end(int rank, const std::string& why);
  /// From now on "all" means these ranks, in this order.  A rank that joins "all" waits for them.  A rank that joined
  /// before the call waits for them too.  A rank that waits for "all" and is not invited is refused.
  Answers invite(std::vector<std::int32_t> ranks);

  // For elastic jobs:
  /// From now on a rank that is not invited waits for its invitation, and is no longer refused.
  void hold_strangers() { holds_ = true; }
  bool holds_strangers() const { return holds_; }
  /// Adds a rank of this host, with the next number.  The rank is not invited.
  void add(int host);
  /// The job does not need the rank any more: the rank is refused now, or when it joins.
  Answers dismiss(int rank);
  /// Answers a rank's `expect`.  @param next  the next world's ranks in its order, with the asking rank
  Answers tell_expected(const wire::MeetingMessage& asked, const std::vector<std::int32_t>& next) const;

 private:
  using Ranks = std::vector<std::int32_t>;
  struct JoinRequest {
    std::uint64_t token = 0;
    std::string text;
  };
  using Gathering = std::map<std::int32_t, JoinRequest>;  ///< the requests of ranks that have joined

  Answers join(const wire::MeetingMessage& message);
  Answers withdraw(const wire::MeetingMessage& message);
  /// Returns why @p rank cannot join these ranks, or an empty text if it can.
  std::string nonsense(std::int32_t rank, const Ranks& ranks) const;
  const Ranks& participants(const Ranks& key) const { return key.empty() ? invited_ : key; }
  /// Returns the world's message if all ranks of this gathering have joined, and nothing before.
  Answers complete(const Ranks& key);
  MeetingAnswer refuse(const Gathering& who, int code, const std::string& why) const;
  void forget(std::int32_t rank);

  std::vector<int> host_of_;
  std::vector<std::string> ended_;  ///< [np] why the rank will not come; empty: the rank may come
  Ranks invited_;
  std::map<Ranks, Gathering> gatherings_;  ///< by the ranks that are waited for; empty: "all"
  std::map<std::int32_t, Ranks> place_;    ///< the key of each waiting rank's gathering
  std::set<std::int32_t> dismissed_;
  bool holds_ = false;
  std::uint64_t epoch_ = 0;
  std::map<std::int32_t, std::uint64_t> world_of_;  ///< the epoch of each rank's last world
};

}  // namespace hvd::launcher
