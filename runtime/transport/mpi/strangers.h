/// @file strangers.h — MPI's own listening sockets, in jobs over several hosts.
///
/// Open MPI's TCP transport accepts whoever calls and then waits for a greeting, while its rank's progress stands
/// still: a stranger can slow the whole job.  Only hosts of the job have reason to call.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <vector>

namespace hvd::transport {

/// Lets only addresses of the ranks' hosts connect to the sockets that MPI opened.  Collective over `comm`, which is to
/// hold all ranks of the launch.  Where it cannot be done rightly nothing is filtered, and at HOROVOD_LOG_LEVEL=info
/// rank 0 or the rank concerned says why.  HVD_FILTER_PEERS=0, the same on all ranks: nothing is filtered.
/// @param before what listened before MPI was initialised, and is left alone; nullptr: the user initialised MPI, so
///   MPI's sockets cannot be told from the user's.
void keep_strangers_out(MPI_Comm comm, const std::vector<std::uint64_t>* before);

}  // namespace hvd::transport
