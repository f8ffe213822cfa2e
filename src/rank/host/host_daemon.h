/// @file host_daemon.h — hvdrank --daemon: one process a host.  The daemon is the parent of the guards, and of the PMIx
/// server of the ranks.
///
///   hvdrun ─ host daemon ─ guard ─ rank
///
/// The daemon forks the guards at once: they connect to hvdrun while libpmix starts.  A guard starts its rank once it
/// has hvdrun's manifest and the daemon's MPI variables.  Orphans of a killed guard become children of the daemon,
/// which kills them.
#pragma once
#include <string>
#include <vector>

#include "rank/launch/rank_environment.h"

namespace hvd::rank {

/// Runs the daemon and ends the process.  The exit code is 0 when all guards have ended, nothing is left below them,
/// and hvdrun is still there.  Returns only when the parent is gone already.
/// @param call        from take_daemon_context(), so without a rank
/// @param ranks       of this host, by local rank
/// @param mpi_folder  where Open MPI's libraries lie; empty: the loader's own folders
/// @param elastic     hvdrun may ask for more guards; the daemon lives until hvdrun releases it, and starts no PMIx
int run_host_daemon(const LaunchContext& call, const std::vector<int>& ranks, const std::string& mpi_folder,
                    bool elastic);

}  // namespace hvd::rank
