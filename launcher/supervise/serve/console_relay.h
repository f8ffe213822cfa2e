/// @file console_relay.h — hvdrun attach, in the job: bytes between callers and the ranks' guards.
#pragma once
#include <chrono>
#include <map>
#include <string_view>
#include <vector>

#include "launcher/control/commands/attach.h"
#include "launcher/control/commands/query_server.h"
#include "launcher/control/session.h"
#include "launcher/mapping/job_map.h"
#include "wire/messages/console.h"

namespace hvd::launcher {

/// A rank has one console.  While the console is open or closing, another caller waits up to three seconds.
class ConsoleRelay {
 public:
  ConsoleRelay(Session& session, const JobMap& map, QueryServer& callers)
      : session_(session), map_(map), callers_(callers) {}

  /// A caller asks for a console.  @param rank  may be any number
  void open(int caller, long long rank);
  /// @param body  of the guard's wire::Type::console
  void take(int rank, std::string_view body);
  /// The rank's console ends with the rank.
  void rank_ended(int rank);
  /// One turn of the loop, after the callers' queries.
  void turn();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    int caller, rank;
    Clock::time_point limit;
  };
  void ask(int caller, int rank);
  void refuse(int caller, wire::ConsoleRefusal why, std::string_view text = {});

  Session& session_;
  const JobMap& map_;
  QueryServer& callers_;
  std::map<int, int> caller_of_;  ///< by rank; -1: the caller is gone, the guard has not closed the console yet
  std::vector<Waiting> waiting_;
};

}  // namespace hvd::launcher
