/// @file mpi_variables.h — the variables by which Open MPI finds its world, besides those of PMIx.
#pragma once
#include <string>
#include <string_view>

#include "wire/manifest/daemon_manifest.h"

namespace hvd::rank {

/// This process's variables that an outer launcher set for the processes it started are removed: they would mislead our
/// ranks.  The folders of that launcher's software stay.
void forget_outer_launcher();

/// Variables that mpirun sets for each rank, and scripts read: "NAME=value" texts, each ended by a zero byte.
/// @param ranks_here  number of ranks on this host
std::string mpi_variables(const wire::DaemonManifest& manifest, int rank, int local_rank, int ranks_here);

/// Without a PMIx server Open MPI 5 would make each process a world of its own.  This variable makes MPI_Init fail with
/// @p reason, which is one word.
std::string no_mpi(std::string_view reason);

}  // namespace hvd::rank
