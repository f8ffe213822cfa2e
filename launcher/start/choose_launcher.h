/// @file choose_launcher.h — chooses the program that starts a job's ranks: hvdrun's own host daemons, or Open MPI's
/// mpirun.
#pragma once
#include <string>

namespace hvd::launcher {

enum class LauncherKind { daemons, mpirun };

struct LauncherChoice {
  LauncherKind kind = LauncherKind::daemons;
  std::string why;  ///< for the user
};

struct LauncherFacts {
  bool wants_mpirun = false;          ///< --launcher mpirun
  bool has_mpirun_arguments = false;  ///< --mpi-args or --binding-args
};

/// Chooses between host daemons and mpirun; no other code makes this choice.  A host without libpmix does not change
/// the choice: a rank needs MPI only if its program calls MPI.  A daemon without a PMIx server reports the lack.
inline LauncherChoice choose_launcher(const LauncherFacts& facts) {
  if (facts.wants_mpirun) return {LauncherKind::mpirun, "--launcher mpirun"};
  if (facts.has_mpirun_arguments) return {LauncherKind::mpirun, "--mpi-args and --binding-args are for mpirun"};
  return {LauncherKind::daemons, "the default"};
}

}  // namespace hvd::launcher
