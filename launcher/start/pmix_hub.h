/// @file pmix_hub.h — carries PMIx's words between the hosts of a job: gathers fences, passes requests on.
///
/// Pure: messages in, messages out.  Hosts are numbers, as in the plan.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "wire/messages/pmix_message.h"

namespace hvd::launcher {

class PmixHub {
 public:
  using Outgoing = std::vector<std::pair<int, wire::PmixMessage>>;  ///< (host, message)

  /// @param host_of  [np] the host of each rank
  PmixHub(std::vector<int> host_of, int hosts);

  /// @p from a host's daemon; `abort` and `spawn` are not for the hub.  What is nonsense is answered with `failed`, or
  /// dropped where it asks for nothing: a daemon runs user code's requests.
  Outgoing receive(int from, const wire::PmixMessage& message);
  /// That host's daemon is gone: whoever waits for it is told.
  Outgoing lose(int host);

 private:
  /// One fence under way: the hosts of its participants, and what has come.
  struct Fence {
    std::vector<int> hosts;                                          ///< that take part, ascending
    std::map<int, std::pair<std::uint64_t, std::string>> arrived{};  ///< host → its token and data
    bool failed = false;                                             ///< a host of it is gone
  };
  struct Question {
    int asker = 0, asked = 0;  ///< hosts
    std::uint64_t token = 0;   ///< the asker's
  };
  Outgoing fence(int from, const wire::PmixMessage& message);
  Outgoing request(int from, const wire::PmixMessage& message);
  Outgoing published(int from, const wire::PmixMessage& message);
  std::vector<int> hosts_of(const std::vector<std::int32_t>& ranks) const;
  static Outgoing finish(Fence& fence);

  const std::vector<int> host_of_;
  const int hosts_;
  std::vector<bool> lost_;  ///< [hosts]
  /// Participants → fences of theirs, in the order in which the first host came.  One set's fences follow each other on
  /// each host, so a host's next message belongs to the first fence that it has no part in yet.
  std::map<std::vector<std::int32_t>, std::vector<Fence>> fences_;
  std::map<std::uint64_t, Question> questions_;
  std::uint64_t last_question_ = 0;
};

}  // namespace hvd::launcher
