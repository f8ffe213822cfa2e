/// @file between_hosts.h — how ranks find their world, and what tensors travel by between hosts: MPI, or TCP of our
/// own.
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

/// What a meeting has come to.
struct FoundWorld {
  TransportPtr transport;
  std::unique_ptr<RevocationWatch> watch;  ///< by whom hvdrun can end the world; null: of one rank, or MPI's
};

/// The world of @p ranks (of the launch; empty: all), by way of the host daemon.  As HVD_TRANSPORT says: mpi: @p
/// open_mpi for the ranks that it is given; auto: it too where MPI has a fabric on some host, HOROVOD_CPU_OPERATIONS
/// says MPI, or hosts cannot reach one another.  Else no MPI is needed.  Where they reach one another and
/// their connections are disturbed there is no transport: a stranger must not choose MPI, which asks for no key.
/// Collective; all choose alike.
/// @p introduction  for all others (Transport::introductions()); no zero bytes.  Throws Error: usage, unavailable,
/// timeout, peer_lost.
FoundWorld world_by_meeting(RankMeeting& meeting, const std::vector<int>& ranks, const std::string& introduction,
                            const core::Config& config,
                            const std::function<TransportPtr(const std::vector<int>&)>& open_mpi);

/// Where MPI has brought the ranks together: @p mpi itself, or TCP, which needs it no more.  By the same rules.
/// Collective over the ranks of @p mpi.
TransportPtr between_hosts(TransportPtr mpi, const std::string& introduction, const core::Config& config);

}  // namespace hvd::api
