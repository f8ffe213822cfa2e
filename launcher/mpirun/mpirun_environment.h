/// @file mpirun_environment.h — the variables that mpirun itself reads.
#pragma once
#include <map>
#include <string>

#include "launcher/mpirun/mpirun_command.h"

namespace hvd::launcher {

/// Adds variables to mpirun's environment.  Variables that the user has set stay.
/// @param folder  the job's, where hwloc finds no plugins
void add_mpirun_variables(const Mpirun& mpirun, const MpirunOptions& options, bool all_local, const std::string& folder,
                          std::map<std::string, std::string>* environment);

/// Variables that halve the start time of an mpirun with all ranks on its own machine.  Pure.  Only mpirun gets them
/// (own_variables): ranks and their children do not.
std::map<std::string, std::string> quick_start(Flavour flavour);

/// Names a variable of mpirun's environment: a list, by blanks, of variables that guards keep from their ranks.
inline constexpr const char* own_variables = "HVD_MPIRUN_ONLY";

}  // namespace hvd::launcher
