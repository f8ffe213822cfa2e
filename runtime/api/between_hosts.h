/// @file between_hosts.h — how ranks find their world, and choose the transport between hosts: MPI, or the runtime's
/// own TCP.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/rank_meeting.h"
#include "api/revocation_watch.h"
#include "core/settings/config.h"
#include "transport/transport.h"

namespace hvd::api {

using TransportPtr = std::unique_ptr<transport::Transport>;

/// The result of a meeting.
struct FoundWorld {
  TransportPtr transport;
  std::unique_ptr<RevocationWatch> watch;  ///< lets hvdrun end the world; null: the world has one rank, or uses MPI
};

/// Finds the world of @p ranks (of the launch; empty: all) through the host daemon, and opens its transport.
/// Collective: all ranks choose the same transport, by HVD_TRANSPORT.
///   mpi   MPI.
///   tcp   TCP.
///   auto  TCP.  Between hosts MPI instead, in these cases:
///         - MPI has a fabric on some host
///         - HOROVOD_CPU_OPERATIONS is MPI
///         - OpenSSL is missing
///         - the hosts cannot connect to one another
/// If hosts can connect, but their connections are disturbed, the call throws.  Falling back to MPI here would let a
/// stranger, by disturbing connections, move the job to MPI, which checks no key.
/// @param introduction  text for all other ranks (Transport::introductions()), without zero bytes
/// @param open_mpi      opens MPI for the given ranks of the launch; called only if MPI is chosen
/// Throws Error: usage, unavailable, timeout, peer_lost.
FoundWorld world_by_meeting(RankMeeting& meeting, const std::vector<int>& ranks, const std::string& introduction,
                            const core::Config& config,
                            const std::function<TransportPtr(const std::vector<int>&)>& open_mpi);

/// Chooses the transport for ranks that MPI has started, by the same rules.  Returns @p mpi itself, or TCP, which does
/// not use MPI any more.  Collective over the ranks of @p mpi.
TransportPtr between_hosts(TransportPtr mpi, const std::string& introduction, const core::Config& config);

}  // namespace hvd::api
