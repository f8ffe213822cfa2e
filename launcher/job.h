/// @file job.h — everything decided before anything is started.
#pragma once
#include <string>
#include <vector>

#include "launcher/alloc/resolve.h"
#include "launcher/mpirun/mpirun.h"
#include "launcher/options/settings.h"
#include "launcher/payload/payload.h"
#include "launcher/place/map.h"

namespace hvd::launcher {

struct JobPlan {
  Settings settings;
  Plan plan;
  Machines machines;                  ///< [plan.hosts]; this machine, or --topology's for all
  std::vector<std::string> reach_us;  ///< our own addresses towards the remote hosts, each once
  std::vector<ResolvedHost> hosts;    ///< of the allocation, as they were looked up
  LoadedPayload payload;
  std::string python;                     ///< empty for a command
  std::string why;                        ///< why this allocation
  std::vector<std::string> launch_agent;  ///< runs a shell on a host; empty: ssh
  Mpirun mpirun;
  std::string rank_program;          ///< hvdrank
  std::vector<std::string> command;  ///< mpirun's
  std::string cwd;
};

/// Folder of the running hvdrun.
std::string own_folder();
/// hvdrank, beside it.  Throws Error{unavailable}.
std::string find_rank_program(const Environment& environment);
/// Throws Error{usage} when it does not exist any more.
std::string current_folder();

/// Allocation, placement without cores, payload, mpirun: in the order in which a user wants to hear of errors.
JobPlan prepare(CommandLine line, const Environment& environment);

/// The first part of it: hosts and ranks, without a payload.  Unknown hosts are the caller's to refuse (require_known).
void place_ranks(JobPlan& job, const Environment& environment);
/// The second: cores and GPUs, for the hosts that can be looked at from here.  Throws Error{usage} for too few GPUs.
void share_out(JobPlan& job, const Environment& environment);

/// Who runs where and the exact command, for people or as JSON.
std::string dry_run_text(const JobPlan& job);
std::string dry_run_json(const JobPlan& job);

/// Environment of rank @p place: the user's own, what options set, what hvdrun adds.
/// @param environ_lines  "NAME=value" as in environ
std::map<std::string, std::string> rank_environment(const JobPlan& job, const RankPlace& place,
                                                    const std::vector<std::string>& environ_lines);

}  // namespace hvd::launcher
