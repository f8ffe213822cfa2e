/// @file elastic_part.h — what an elastic job's supervisor does besides: it carries out what ElasticJob decides.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/control/session.h"
#include "launcher/elastic/elastic_job.h"
#include "launcher/elastic/host_discovery.h"
#include "launcher/job/job.h"
#include "launcher/output/printer.h"
#include "launcher/start/host_daemons.h"

namespace hvd::launcher {

class ElasticPart {
 public:
  struct ElasticCallbacks {
    std::function<wire::RankManifest(const MappedRank&)> manifest;
    std::function<void(int host, const std::vector<int>& ranks)> start_host;  ///< a daemon on a host of the map
    std::function<DaemonReport(int host)> report;                             ///< how that daemon's start fares
    std::function<void(const std::string& why)> end;                          ///< the job cannot go on
  };
  /// @param job  its map grows with the workers
  ElasticPart(Job& job, Session& session, Printer& printer, ElasticCallbacks callbacks);

  // Events:
  void waits(int worker);
  /// See ElasticJob.
  std::vector<std::int32_t> expects(int worker);
  void met(std::uint64_t epoch, const std::vector<std::int32_t>& members);
  /// False where the job ends with that rank.
  bool survives(const wire::DeathRecord& death);

  /// One turn of the loop, while the job goes on.
  void turn();
  /// Of ours, whose end we wait for.
  std::optional<pid_t> child() const { return discovery_.child(); }
  bool outlives_its_workers() const { return !is_over_ && elastic_.outlives_its_workers(); }
  bool is_excused(int worker) const { return elastic_.is_excused(worker); }
  std::vector<int> ranks() const { return elastic_.ranks(); }

 private:
  void carry_out(const ElasticOrders& orders);
  void look_at_hosts(double now);
  void start(const std::vector<ElasticWorker>& workers, double now);
  /// Their place in the map, and their cores.
  MappedRank place(const ElasticWorker& worker, int host) const;
  int living_host(const std::string& name) const;
  int add_host(const std::string& name);
  void miss_late_ones(double now);
  bool is_started(int worker) const;
  /// Says once why nobody can come up on a host.
  void tell_of_host(int host, double seconds_left);

  Job& job_;
  Session& session_;
  Printer& printer_;
  const ElasticCallbacks callbacks_;
  ElasticJob elastic_;
  HostDiscovery discovery_;
  bool is_over_ = false;                              ///< the job does not survive a death
  std::vector<ElasticWorker> to_start_;               ///< at the next turn: not while the session tells of a rank
  std::map<int, double> due_;                         ///< workers that have not come yet, and when they are given up
  std::map<std::string, std::string> host_troubles_;  ///< that were told, by host
};

}  // namespace hvd::launcher
