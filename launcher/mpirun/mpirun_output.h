/// @file mpirun_output.h — finds the reason for a job's end in mpirun's output.  Pure.
#pragma once
#include <string>
#include <vector>

#include "launcher/mapping/job_map.h"

namespace hvd::launcher {

/// The lines that MPI in a rank has sent to mpirun.  The first lines are kept: they name the fault, later ones explain.
/// Empty: mpirun has only reported a rank's end.
std::vector<std::string> first_words(const std::string& all_output);

/// mpirun ends all ranks when the connection to one of its daemons breaks, and only its output tells why.
/// @return "lost its connection to beta"; empty: mpirun says nothing of the kind, or all hosts are local
std::string lost_connection(const std::string& output, const JobMap& map);

}  // namespace hvd::launcher
