/// @file mpirun_command.h — the exact command for mpirun.
#pragma once
#include <string>
#include <vector>

#include "launcher/mapping/job_map.h"
#include "launcher/options/settings.h"
#include "launcher/start/open_mpi.h"

namespace hvd::launcher {

struct MpirunOptions {
  bool as_root = false;
  bool tcp = false;
  std::string interfaces;            ///< "a,b"; empty: mpirun chooses
  std::vector<std::string> extra;    ///< --mpi-args
  std::vector<std::string> binding;  ///< --binding-args; empty: ours
  std::vector<std::string> agent;    ///< remote agent and its argument; used when a host is remote
  std::string rank_program;          ///< hvdrank
};

/// Reads mpirun's options from the user's settings.  @param own_program  hvdrun, which is mpirun's remote agent
MpirunOptions mpirun_options(const Settings& settings, const std::string& own_program, const std::string& rank_program);

/// The command, program first.  Pure.  The command has the names of public variables (-x); mpirun's environment has
/// their values.
std::vector<std::string> mpirun_command(const Mpirun& mpirun, const JobMap& map, const MpirunOptions& options);

}  // namespace hvd::launcher
