/// @file mpi_variables.h — the variables, other than PMIx's, by which Open MPI finds its world.
#pragma once
#include <string>
#include <string_view>

#include "wire/manifest/daemon_manifest.h"

namespace hvd::rank {

/// An outer launcher may have set variables for the processes that it started.  Removes these variables from this
/// process, because they would mislead our ranks.  The folders of that launcher's software stay.
void forget_outer_launcher();

/// Variables that mpirun sets for each rank, and scripts read: "NAME=value" texts, each ended by a zero byte.
/// @param ranks_here  number of ranks on this host
std::string mpi_variables(const wire::DaemonManifest& manifest, int rank, int local_rank, int ranks_here);

/// A variable for ranks without a PMIx server.  Open MPI 5 would make each such process a separate world.  The variable
/// makes MPI_Init fail with @p reason, which is one word.
std::string no_mpi(std::string_view reason);

}  // namespace hvd::rank
