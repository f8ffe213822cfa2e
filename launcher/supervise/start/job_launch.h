/// @file job_launch.h — starts what brings up a job's ranks: keys, channel, manifests, and host daemons or mpirun.
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/process/stopped_children.h"
#include "launcher/control/commands/job_folder.h"
#include "launcher/control/session.h"
#include "launcher/events/job_event.h"
#include "launcher/job/job.h"
#include "launcher/job/script_servers.h"
#include "launcher/output/printer.h"
#include "launcher/start/host_daemons.h"
#include "launcher/start/rank_starter.h"
#include "launcher/supervise/watch/job_timeline.h"

namespace hvd::launcher {

class JobLaunch {
 public:
  /// @param collects_results  hvdrun passes on the ranks' results
  JobLaunch(Job& job, const JobFolder& folder, const JobTimeline& timeline, Printer& printer, bool collects_results)
      : job_(job), folder_(folder), timeline_(timeline), printer_(printer), collects_results_(collects_results) {}

  /// Starts the starter, and prepares the conversation with the guards to come.  Throws Error.
  std::unique_ptr<Session> begin(const EventSink& events);

  const std::string& job_id() const { return job_id_; }
  /// Null before begin().
  RankStarter* starter() { return starter_.get(); }
  /// Reads the starter's output, and prints it with --verbose.
  void read_starter_output();
  /// Call it on SIGCHLD.
  void look_for_stopped() { stopped_.look(std::chrono::steady_clock::now()); }
  /// Continues a starting process that a signal has stopped for a while, and says so.  Call it every second while
  /// has_stopped().
  void continue_stopped();
  bool has_stopped() const { return stopped_.are_any(); }

  // For elastic jobs, whose map grows:
  wire::RankManifest manifest(const MappedRank& rank) const;
  /// Starts a daemon on a host of the map, for these ranks.  Throws Error if this process cannot.
  void start_host(int host, const std::vector<int>& ranks);
  /// Returns the progress of the start of that host's daemon.
  DaemonReport report(int host) { return daemons().report(static_cast<std::size_t>(host)); }

 private:
  bool may_spread() const { return job_.elastic && job_.elastic->may_spread; }
  bool stays_here() const { return job_.map.all_local() && !may_spread(); }
  bool has_daemons() const { return job_.launcher.kind == LauncherKind::daemons; }
  std::vector<std::string> addresses_to_bind() const;
  /// Our addresses in networks that lead to no host by its name, one for each interface.  A daemon's connection can
  /// move there.
  std::vector<std::string> further_addresses() const;
  /// Sets the variables that tell daemons where we listen.
  void tell_addresses();
  PayloadDelivery take_payload();
  std::vector<wire::RankManifest> manifests() const;
  /// An elastic job has no other starter: choose_command().
  HostDaemons& daemons() { return static_cast<HostDaemons&>(*starter_); }

  Job& job_;
  const JobFolder& folder_;
  const JobTimeline& timeline_;
  Printer& printer_;
  const bool collects_results_;
  std::string job_id_;
  ScriptServers servers_;
  Fd payload_;                                      ///< sealed memory with the pickle, for the ranks of this machine
  std::map<std::string, std::string> environment_;  ///< the starter's
  std::vector<std::string> tcp_;                    ///< addresses at which the channel listens
  std::unique_ptr<RankStarter> starter_;
  StoppedChildren stopped_;
};

}  // namespace hvd::launcher
