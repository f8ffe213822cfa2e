/// @file choose_launcher.h — who starts the ranks of a job: hvdrun's own host daemons, or Open MPI's mpirun.
#pragma once
#include <string>

namespace hvd::launcher {

enum class LauncherKind { daemons, mpirun };

struct LauncherChoice {
  LauncherKind kind = LauncherKind::mpirun;
  std::string why;            ///< for people
  bool is_makeshift = false;  ///< not as it should be: the user is told why, and the advice
  std::string advice{};       ///< for people
};

struct LauncherFacts {
  bool wants_mpirun = false;          ///< --launcher mpirun
  bool has_mpirun_arguments = false;  ///< --mpi-args or --binding-args
  bool has_mpirun = true;             ///< it was found
};

/// The one place that decides.  @param find_pmix  asked only where it matters: why there is no libpmix to use; empty
/// where there is one
LauncherChoice choose_launcher(const LauncherFacts& facts, auto&& find_pmix) {
  if (facts.wants_mpirun) return {LauncherKind::mpirun, "--launcher mpirun"};
  if (facts.has_mpirun_arguments) return {LauncherKind::mpirun, "--mpi-args and --binding-args are for mpirun"};
  if (!facts.has_mpirun) return {LauncherKind::daemons, "the default"};
  // A program that calls MPI runs at least.
  if (const std::string problem = find_pmix(); !problem.empty()) return {LauncherKind::mpirun, problem, true};
  return {LauncherKind::daemons, "the default"};
}

}  // namespace hvd::launcher
