/// @file choose_launcher.h — who starts the ranks of a job: hvdrun's own host daemons, or Open MPI's mpirun.
#pragma once
#include <string>

namespace hvd::launcher {

enum class LauncherKind { daemons, mpirun };

struct LauncherChoice {
  LauncherKind kind = LauncherKind::mpirun;
  std::string why;  ///< for people
};

struct LauncherFacts {
  bool wants_mpirun = false;          ///< --launcher mpirun
  bool wants_daemons = false;         ///< --launcher hvdrun, typed or in the environment
  bool all_local = true;              ///< every rank runs on this host
  bool has_agent = false;             ///< a resource manager's way leads to the other hosts, not ssh
  bool has_mpirun_arguments = false;  ///< --mpi-args or --binding-args
};

/// The one place that decides.  @param find_pmix  asked only where it matters: why there is no libpmix to use, empty
/// where there is one
LauncherChoice choose_launcher(const LauncherFacts& facts, auto&& find_pmix) {
  if (facts.wants_mpirun) return {LauncherKind::mpirun, "--launcher mpirun"};
  if (facts.has_mpirun_arguments) return {LauncherKind::mpirun, "--mpi-args and --binding-args are for mpirun"};
  if (!facts.all_local && facts.has_agent)
    return {LauncherKind::mpirun, "a rank runs on another host, and the way there is not ssh"};
  if (!facts.all_local && !facts.wants_daemons)
    return {LauncherKind::mpirun, "a rank runs on another host, and --launcher hvdrun is not given"};
  if (const std::string problem = find_pmix(); !problem.empty()) return {LauncherKind::mpirun, problem};
  return {LauncherKind::daemons, facts.all_local ? "all ranks run on this host" : "--launcher hvdrun"};
}

}  // namespace hvd::launcher
