/// @file mpirun.h — which mpirun, and the exact command for it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "launcher/place/plan.h"

namespace hvd::launcher {

/// The two command lines that Open MPI has: ORTE's (4.x) and PRRTE's (5.x).
enum class Flavour { openmpi4, openmpi5 };

struct Mpirun {
  std::string program;  ///< absolute
  Flavour flavour = Flavour::openmpi4;
  std::string library_folder;  ///< where its libmpi.so.40 is when the system's loader would not look there; else empty
};

struct MpirunOptions {
  bool as_root = false;
  bool tcp = false;
  std::string interfaces;            ///< "a,b"; empty: mpirun chooses
  std::vector<std::string> extra;    ///< --mpi-args
  std::vector<std::string> binding;  ///< --binding-args; empty: ours
  std::vector<std::string> agent;    ///< remote agent and its argument; used when a host is remote
  std::string rank_program;          ///< hvdrank
};

/// The command, program first.  Pure.  Names of public variables only: their values are in mpirun's environment.
std::vector<std::string> mpirun_command(const Mpirun& mpirun, const Plan& plan, const MpirunOptions& options);

/// Finds mpirun and tells its flavour by the files around it; only an unusual installation is asked with --version.
/// @param wanted    --mpirun or HVD_MPIRUN; empty: the first in PATH, then the one in @p own_folder
/// Throws Error{unavailable} that says what to install, Error{usage} for another MPI's mpirun.
Mpirun find_mpirun(const std::string& wanted, const std::string& search_path, const std::string& own_folder);

/// First executable file called @p name in the folders of @p search_path; empty when there is none.
std::string find_program(const std::string& name, const std::string& search_path);

}  // namespace hvd::launcher
