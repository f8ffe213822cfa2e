/// @file job_server.h — a running job answers questions (control/commands/jobs.h), and asks ranks where they are.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/control/commands/query_server.h"
#include "launcher/control/session.h"
#include "launcher/hang/hang_text.h"
#include "launcher/supervise/serve/console_relay.h"
#include "wire/shared/operation_record.h"

namespace hvd::launcher {

/// What ps shows, and what a job asks of us.
struct JobDescription {
  std::string id, payload;
  double started_seconds = 0;  ///< CLOCK_REALTIME
  double grace_seconds = 0;    ///< between SIGTERM and SIGKILL
};

class JobServer {
 public:
  using Clock = std::chrono::steady_clock;
  struct ServerCallbacks {
    std::function<void()> kill;
    std::function<std::string(bool as_json)> top;
    /// Both return what the user is told.  @p path  absolute; empty: the job's own file
    std::function<std::string(const std::string& path, bool named)> start_timeline;
    std::function<std::string()> stop_timeline;
    /// @p done is called later, with the last operations of all ranks.
    std::function<void(std::function<void(const wire::JobOperations&)> done)> operations;
    /// Of an elastic job, whose map has all workers that there ever were: the numbers of its ranks.
    std::function<std::vector<int>()> elastic_ranks{};
  };

  JobServer(Session& session, const JobMap& map, const std::string& folder, JobDescription card,
            ServerCallbacks callbacks);

  /// One turn of the loop.
  void turn();
  void add_fds(std::vector<pollfd>& fds) const { commands_.add_fds(fds); }
  /// Nobody waits for an answer.
  bool is_quiet() const { return !commands_.has_callers() && rounds_.empty(); }
  /// Events of the session.
  void stack(int rank, const wire::StackPicture& picture);
  void console(int rank, std::string_view body) { consoles_.take(rank, body); }
  void rank_ended(int rank) { consoles_.rank_ended(rank); }
  /// Python frames of these ranks; @p done is called when all have answered, or after three seconds.
  void ask(const std::vector<int>& ranks, std::function<void(const Pictures&)> done);

 private:
  /// Ranks are asked where they are, until all have answered or the limit is over.
  struct StackRound {
    std::set<int> open;
    Pictures pictures;
    Clock::time_point limit;
    std::function<void(const Pictures&)> done;
  };
  void ask(const std::vector<int>& ranks, bool native, std::chrono::milliseconds limit,
           std::function<void(const Pictures&)> done);
  void obey(const QueryServer::Query& call);
  std::string status() const;
  std::string stacks_text(const Pictures& pictures) const;
  std::vector<int> ended() const;
  /// Of an elastic job: those that have a guard.
  std::vector<MappedRank> shown() const;

  Session& session_;
  const JobMap& map_;
  QueryServer commands_;
  ConsoleRelay consoles_;
  const JobDescription card_;
  const ServerCallbacks callbacks_;
  std::vector<StackRound> rounds_;
};

}  // namespace hvd::launcher
