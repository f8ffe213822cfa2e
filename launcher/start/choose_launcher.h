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
  bool all_local = true;              ///< every rank runs on this host
  bool has_mpirun_arguments = false;  ///< --mpi-args or --binding-args
};

/// The one place that decides.  @param find_pmix  asked only where it matters: why there is no libpmix to use, empty
/// where there is one
LauncherChoice choose_launcher(const LauncherFacts& facts, auto&& find_pmix) {
  if (facts.wants_mpirun) return {LauncherKind::mpirun, "--launcher mpirun"};
  if (facts.has_mpirun_arguments) return {LauncherKind::mpirun, "--mpi-args and --binding-args are for mpirun"};
  if (!facts.all_local) return {LauncherKind::mpirun, "a rank runs on another host"};
  if (const std::string problem = find_pmix(); !problem.empty()) return {LauncherKind::mpirun, problem};
  return {LauncherKind::daemons, "all ranks run on this host"};
}

}  // namespace hvd::launcher
