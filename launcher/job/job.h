/// @file job.h — everything decided before anything is started.
#pragma once
#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/elastic/elastic_job.h"
#include "launcher/elastic/host_discovery.h"
#include "launcher/hosts/resolve.h"
#include "launcher/job/load_payload.h"
#include "launcher/mapping/show_map.h"
#include "launcher/mpirun/mpirun.h"
#include "launcher/options/settings.h"
#include "launcher/start/choose_launcher.h"

namespace hvd::launcher {

/// Of a job whose ranks come and go.
struct ElasticPlan {
  ElasticLimits limits;
  std::optional<std::pair<int, int>> cooldown{};  ///< seconds
  std::vector<ElasticHost> hosts;                 ///< names as they were given
  std::map<int, SlotPlace> places;                ///< of all workers so far, by number
  int first = 0;                                  ///< how many workers there were at first
  std::set<std::string> here;                     ///< names of this machine
  DiscoverySource source;                         ///< of hosts, while the job runs
  bool may_spread = false;                        ///< there are other hosts, or may be
};

/// One of several programs of a job.
struct Program {
  wire::Payload payload;
  int first_rank = 0, ranks = 0;
};

struct Job {
  Settings settings;
  JobMap map;
  Machines machines;                      ///< [map.hosts]; this machine, or --topology's for all
  std::vector<std::string> reach_us;      ///< our own addresses towards the remote hosts, each once
  std::vector<ResolvedHost> hosts;        ///< of the allocation, as they were looked up
  LoadedPayload payload;                  ///< of the first program
  std::vector<Program> programs{};        ///< all, where there are several
  std::string python;                     ///< empty for a command
  std::string why;                        ///< why this allocation
  std::vector<std::string> launch_agent;  ///< runs a shell on a host; empty: ssh
  Mpirun mpirun;                          ///< without a program where none was found, and the job may do without
  std::string rank_program;               ///< hvdrank
  LauncherChoice launcher;
  std::optional<ElasticPlan> elastic;
  std::vector<std::string> command;  ///< mpirun's, or the host daemon's
  std::string cwd;
  std::vector<uid_t> software_owners;  ///< other users whose programs this job runs: base/files/trust.h
};

/// Folder of the running hvdrun.
std::string own_folder();
/// hvdrank, beside it.  Throws Error{unavailable}.
std::string find_rank_program(const Environment& environment);
/// Where a program lies; as it is when that cannot be told here.
std::string place_of(const std::string& program, const Environment& environment);
/// Throws Error{usage} when other users could have chosen the program at @p path, unless --allow-writable allows that.
/// A cluster's software may belong to a user of its own: if hvdrun does not run as root, and the program was found in
/// PATH or named by its whole path.  @p typed  the name as the user typed it
void need_trusted_program(Job& job, const std::string& path, const std::string& typed);
/// Throws Error{usage} when it does not exist any more.
std::string current_folder();

/// Python, mpirun and hvdrank, before any of them is run.  Throws Error{usage, unavailable}.
/// @param with_mpirun  else it may be missing: ranks may not use MPI
void find_programs(Job& job, bool with_python, bool with_mpirun, const Environment& environment);

/// job.launcher and job.command.
void choose_command(Job& job);

/// What a rank runs.
const wire::Payload& payload_of(const Job& job, int rank);

/// Allocation, ranks, payload, mpirun: in the order in which a user wants to hear of errors.
Job prepare(CommandLine line, const Environment& environment);

/// The first part of prepare(): hosts and ranks, no payload.  The caller refuses unknown hosts (require_known).
void place_ranks(Job& job, const Environment& environment);
/// The second part: cores and GPUs, for the hosts whose machine is known here.  Throws Error{usage} for too few GPUs.
void share_out(Job& job, const Environment& environment);

/// Who runs where and the exact command, for people or as JSON.
std::string dry_run_text(const Job& job);
std::string dry_run_json(const Job& job);

/// Environment of rank @p place: the user's own, what options set, what hvdrun adds.
/// @param environ_lines  "NAME=value" as in environ
std::map<std::string, std::string> rank_environment(const Job& job, const MappedRank& place,
                                                    const std::vector<std::string>& environ_lines);

}  // namespace hvd::launcher
