/// @file host_daemon.h — hvdrank --daemon: one process a host, the parent of its guards and the PMIx server of its
/// ranks.
///
///   hvdrun ─ host daemon ─ guard ─ rank
///
/// It forks the guards at once, so that they reach hvdrun while libpmix starts, which waits for nobody; a guard starts
/// its rank when it has both hvdrun's manifest and, from here, the variables by which MPI finds its world.  Whatever a
/// guard that was killed leaves behind comes to this process, which ends it.
#pragma once
#include <string>
#include <vector>

#include "rank/launch/rank_environment.h"

namespace hvd::rank {

/// The process's exit code: 0 once all guards have ended.
/// @param call   as take_daemon_context() read it, without a rank
/// @param ranks       of this host, by local rank
/// @param mpi_folder  where Open MPI's libraries lie; empty: the loader's own folders
/// @param elastic     hvdrun may ask for more guards, and the daemon lives until it says that it will not; no PMIx
int run_host_daemon(const LaunchContext& call, const std::vector<int>& ranks, const std::string& mpi_folder,
                    bool elastic);

}  // namespace hvd::rank
