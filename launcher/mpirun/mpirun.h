/// @file mpirun.h — which mpirun, and the exact command for it.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launcher/mapping/job_map.h"

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
std::vector<std::string> mpirun_command(const Mpirun& mpirun, const JobMap& map, const MpirunOptions& options);

/// HWLOC_COMPONENTS for every mpirun: its look at the topology would open displays, GPUs and their drivers: up to
/// seconds, for nothing that we ask of it.
inline constexpr const char* without_drivers = "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero";

/// Variables with which a mpirun whose ranks are all on its machine starts in half the time.  Pure.  They are for it
/// alone (own_variables): neither its ranks nor what these start shall see them.
std::map<std::string, std::string> quick_start(Flavour flavour);

/// Names a variable of mpirun's environment that lists, by blanks, those which guards keep from their ranks.
inline constexpr const char* own_variables = "HVD_MPIRUN_ONLY";

/// Finds mpirun and tells its flavour by the files around it; only an unusual installation is asked with --version.
/// @param wanted    --mpirun or HVD_MPIRUN; empty: the first in PATH, then the one in @p own_folder
/// @param look      called with its path before it is run; may throw
/// Throws Error{unavailable} that says what to install, Error{usage} for another MPI's mpirun.
Mpirun find_mpirun(const std::string& wanted, const std::string& search_path, const std::string& own_folder,
                   const std::function<void(const std::string&)>& look = {});

/// First executable file called @p name in the folders of @p search_path; empty when there is none.
std::string find_program(const std::string& name, const std::string& search_path);

}  // namespace hvd::launcher
