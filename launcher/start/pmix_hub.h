/// @file pmix_hub.h — PMIx between the hosts of a job: gathers fences, and passes requests on.
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

  /// Takes a message from a host's daemon, except `abort` and `spawn`.  Daemons pass on requests of user code, which
  /// may make no sense.  Such a request is answered with `failed`, or dropped if it needs no answer.
  Outgoing receive(int from, const wire::PmixMessage& message);
  /// Call it when a host's daemon is gone.  Notifies the hosts that wait for the daemon.
  Outgoing lose(int host);

 private:
  /// One fence under way.
  struct Fence {
    std::vector<int> hosts;                                          ///< of the participants, ascending
    std::map<int, std::pair<std::uint64_t, std::string>> arrived{};  ///< by host: its token and data
    bool failed = false;                                             ///< a host is gone
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
  /// By participants: their fences, in the order of their first messages.  Each host runs the fences of one set one
  /// after another.  So a host's next message belongs to the first fence that lacks a message of the host.
  std::map<std::vector<std::int32_t>, std::vector<Fence>> fences_;
  std::map<std::uint64_t, Question> questions_;
  std::uint64_t last_question_ = 0;
};

}  // namespace hvd::launcher
