/// @file job.h — a job: the decisions that are made before any process starts.
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
#include "launcher/options/settings.h"
#include "launcher/start/choose_launcher.h"
#include "launcher/start/open_mpi.h"

namespace hvd::launcher {

/// The plan of an elastic job.
struct ElasticPlan {
  ElasticLimits limits;
  std::optional<std::pair<int, int>> cooldown{};  ///< seconds
  std::vector<ElasticHost> hosts;                 ///< with the names that the user gave
  std::map<int, SlotPlace> places;                ///< worker's number → its place; includes workers that have ended
  int first = 0;                                  ///< the number of workers at the start
  std::set<std::string> here;                     ///< names of this machine
  DiscoverySource source;                         ///< names hosts while the job runs
  bool may_spread = false;                        ///< the job has other hosts, or may get some
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
  std::vector<ResolvedHost> hosts;        ///< of the allocation, after the look-up of their names
  LoadedPayload payload;                  ///< of the first program
  std::vector<Program> programs{};        ///< all programs; empty: there is one
  std::string python;                     ///< empty for a command
  std::string why;                        ///< why this allocation was chosen
  std::vector<std::string> launch_agent;  ///< runs a shell on a host; empty: ssh
  Mpirun mpirun;                          ///< `program` is empty when no mpirun was found, and the job needs none
  std::string rank_program;               ///< hvdrank
  LauncherChoice launcher;
  std::optional<ElasticPlan> elastic;
  std::vector<std::string> command;  ///< mpirun's, or the host daemon's
  std::string cwd;
  std::vector<uid_t> software_owners;  ///< other users whose programs this job runs: base/files/trust.h
};

/// Folder of the running hvdrun.
std::string own_folder();
/// The path of hvdrank, beside hvdrun.  Throws Error{unavailable}.
std::string find_rank_program(const Environment& environment);
/// The path of a program; @p program itself when it is not found here.
std::string path_of_program(const std::string& program, const Environment& environment);
/// Throws Error{usage} if another user could have put the program at @p path there, unless --allow-writable is set.  A
/// cluster's software may belong to a special user.  hvdrun trusts that user if the program was found in PATH or named
/// by its whole path.  As root, hvdrun does not trust that user.
/// @param typed  the name that the user typed
void need_trusted_program(Job& job, const std::string& path, const std::string& typed);
/// The working folder.  Throws Error{usage} when the folder does not exist any more.
std::string current_folder();

/// Finds Python, mpirun and hvdrank, and runs none of them.  Throws Error{usage, unavailable}.
/// @param with_mpirun  false: mpirun may be missing, since ranks may not use MPI
void find_programs(Job& job, bool with_python, bool with_mpirun, const Environment& environment);

/// Sets job.launcher and job.command.
void choose_command(Job& job);

/// The payload of a rank's program.
const wire::Payload& payload_of(const Job& job, int rank);

/// Makes a job: allocation, ranks, payload, mpirun.  In this order the user gets the most useful error first.
Job prepare(CommandLine line, const Environment& environment);

/// The first part of prepare(): hosts and ranks, no payload.  Unknown hosts are left to the caller (require_known()).
void place_ranks(Job& job, const Environment& environment);
/// The second part: cores and GPUs, for the hosts with a known machine.  Throws Error{usage} if there are too few GPUs.
void share_out(Job& job, const Environment& environment);

/// The ranks' places and the exact command, as text or JSON.
std::string dry_run_text(const Job& job);
std::string dry_run_json(const Job& job);

/// Environment of a rank: the user's variables, those that options set, and those that hvdrun adds.
/// @param environ_lines  "NAME=value", as in environ
std::map<std::string, std::string> rank_environment(const Job& job, const MappedRank& place,
                                                    const std::vector<std::string>& environ_lines);

}  // namespace hvd::launcher
