/// @file strangers.h — protects MPI's listening sockets in jobs over several hosts.
///
/// Open MPI's TCP transport accepts every connection and then waits for a first message.  The rank makes no progress
/// during the wait, so a foreign host can slow the whole job.  Only hosts of the job need to connect.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <vector>

namespace hvd::transport {

/// Lets only addresses of the ranks' hosts connect to the sockets that MPI opened.  Collective over @p comm, which must
/// contain all ranks of the launch.  With HOROVOD_LOG_LEVEL=info each rank logs the number of filtered sockets. Nothing
/// is filtered if a rank does not know its addresses, or if @p before is nullptr.  Rank 0 then logs the reason.  With
/// HVD_FILTER_PEERS=0, which must be set on all ranks, nothing is filtered.  Throws Error{peer_lost} if MPI fails.
/// @param before  inodes of sockets that listened before MPI was initialised (open_listeners()); these sockets get no
///   filter.  nullptr: the user initialised MPI, so MPI's sockets cannot be distinguished from the user's.
void keep_strangers_out(MPI_Comm comm, const std::vector<std::uint64_t>* before);

}  // namespace hvd::transport
