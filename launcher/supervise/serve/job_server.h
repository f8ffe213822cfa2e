/// @file job_server.h — a running job answers other hvdruns (control/commands/jobs.h), and asks ranks for stacks.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/control/commands/query_server.h"
#include "launcher/control/session.h"
#include "launcher/events/job_event.h"
#include "launcher/supervise/serve/console_relay.h"
#include "launcher/supervise/start/elastic_part.h"
#include "launcher/supervise/watch/job_timeline.h"
#include "launcher/supervise/watch/kept_operations.h"
#include "launcher/supervise/watch/reports.h"
#include "launcher/supervise/watch/rounds.h"

namespace hvd::launcher {

/// The description of a job that hvdrun ps and hvdrun kill read.
struct JobDescription {
  std::string id, payload;
  double started_seconds = 0;  ///< CLOCK_REALTIME
  double grace_seconds = 0;    ///< between SIGTERM and SIGKILL
};

/// The parts of a job that JobServer asks.
struct ServedJob {
  Session& session;
  const JobMap& map;
  Reports& reports;
  JobTimeline& timeline;
  KeptOperations& operations;
  const ElasticPart* elastic;  ///< null: the job is not elastic
};

class JobServer {
 public:
  using StacksDone = std::function<void(const Pictures&)>;

  /// @param folder  the job's
  /// @param events  gets KillWanted
  JobServer(ServedJob job, const std::string& folder, JobDescription description, EventSink events);

  /// One turn of the loop.
  void turn();
  void add_fds(std::vector<pollfd>& fds) const { commands_.add_fds(fds); }
  /// No caller waits for an answer.
  bool is_quiet() const { return !commands_.has_callers() && rounds_.empty(); }
  /// Events of the session.
  void stack(int rank, const wire::StackPicture& picture) { rounds_.take(rank, picture); }
  void console(int rank, std::string_view body) { consoles_.take(rank, body); }
  void rank_ended(int rank) { consoles_.rank_ended(rank); }
  /// Asks these ranks for their Python frames.  @p done is called when all have answered, or after three seconds.
  void ask(const std::vector<int>& ranks, StacksDone done);

 private:
  void ask(const std::vector<int>& ranks, bool native, std::chrono::milliseconds limit, StacksDone done);
  void obey(const QueryServer::Query& call);
  std::string status() const;
  std::string stacks_text(const Pictures& pictures) const;
  std::vector<int> ended() const;
  /// All ranks.  In an elastic job: ranks that have a guard.
  std::vector<MappedRank> shown() const;

  Session& session_;
  const JobMap& map_;
  const ServedJob job_;
  QueryServer commands_;
  ConsoleRelay consoles_;
  const JobDescription description_;
  const EventSink events_;
  Rounds<wire::StackPicture> rounds_;
};

}  // namespace hvd::launcher
