/// @file elastic_part.h — carries out the decisions of ElasticJob in a running job.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/control/session.h"
#include "launcher/elastic/elastic_job.h"
#include "launcher/elastic/host_discovery.h"
#include "launcher/hosts/host_lookup.h"
#include "launcher/job/job.h"
#include "launcher/output/printer.h"
#include "launcher/supervise/start/job_launch.h"

namespace hvd::launcher {

class ElasticPart {
 public:
  /// @param job     its map grows with the workers
  /// @param events  gets ElasticOver
  ElasticPart(Job& job, Session& session, Printer& printer, JobLaunch& launch, EventSink events);

  // Events.  @p now: JobClock's seconds
  void waits(int worker, double now) { elastic_.waits(worker, now); }
  /// See ElasticJob.
  std::vector<std::int32_t> expects(int worker, double now) { return elastic_.expects(worker, now); }
  void met(std::uint64_t epoch, const std::vector<std::int32_t>& members, double now) {
    elastic_.met(epoch, members, now);
  }
  /// False when the job ends with that rank.
  bool survives(const wire::DeathRecord& death, double now);

  /// One turn of the loop, while the job goes on.
  void turn(double now);
  /// The host discovery's child process.
  std::optional<pid_t> child() const { return discovery_.child(); }
  bool outlives_its_workers() const { return !is_over_ && elastic_.outlives_its_workers(); }
  bool is_excused(int worker) const { return elastic_.is_excused(worker); }
  std::vector<int> ranks() const { return elastic_.ranks(); }

 private:
  void carry_out(const ElasticOrders& orders);
  void look_at_hosts();
  void start(double now);
  void start_host(int host, const std::vector<int>& workers);
  /// The worker's rank on that host, and its share of cores.
  MappedRank place(const ElasticWorker& worker, int host) const;
  int living_host(const std::string& name) const;
  int add_host(const ResolvedHost& found);
  /// The index of the host, which is added to the map where needed.
  int host_for(const std::string& name);
  /// Takes the name service's answer for the host, if there is one.
  void look_up(const std::string& name);
  void miss_late_ones(double now);
  void drop_unneeded();
  bool is_started(int worker) const;
  /// Reports once why no worker can start on a host.
  void tell_of_host(int host, double seconds_left);

  Job& job_;
  Session& session_;
  Printer& printer_;
  JobLaunch& launch_;
  const EventSink events_;
  ElasticJob elastic_;
  HostDiscovery discovery_;
  HostLookup lookup_;
  std::map<std::string, ResolvedHost> addresses_;     ///< by name: the latest answer of the name service
  std::optional<std::vector<ElasticHost>> named_;     ///< the named hosts, while addresses of some are awaited
  bool is_over_ = false;                              ///< the job does not survive a death
  std::vector<ElasticWorker> to_start_;               ///< by number; not within an event of the session
  std::set<int> unneeded_;                            ///< stopped workers; not within an event of the session
  std::map<int, double> due_;                         ///< by worker that has not come yet: when it is given up
  std::map<std::string, std::string> host_troubles_;  ///< by host: the reason that the user was told last
};

}  // namespace hvd::launcher
