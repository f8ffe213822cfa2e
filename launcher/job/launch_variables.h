/// @file launch_variables.h — the variables that other launchers set for ranks.
///
/// Scripts that were written for torchrun or horovodrun read these variables, so they run unchanged.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "launcher/job/script_servers.h"
#include "launcher/mapping/job_map.h"

namespace hvd::launcher {

/// torchrun's variables: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and so on.  A node is a host.  Pure.
std::map<std::string, std::string> torchrun_variables(const JobMap& map, const MappedRank& rank,
                                                      const ServerAddress& store, const std::string& job_id);

/// The variables of `horovodrun --gloo`: HOROVOD_RANK and so on.  Pure.
std::map<std::string, std::string> horovodrun_variables(const JobMap& map, const MappedRank& rank);

/// Variables that jax.distributed.initialize() reads.  Pure.  An argument of the call takes precedence over its
/// variable.  JAX_COORDINATOR_BIND_ADDRESS is not set, because JAX would combine it with an address from the call.
/// @param has_mpi_names  ranks get OMPI_COMM_WORLD_RANK and related variables, which JAX then reads
std::map<std::string, std::string> jax_variables(const ServerAddress& coordinator, bool has_mpi_names);

/// TF_CONFIG's value for tf.distribute's MultiWorkerMirroredStrategy: all ranks are workers.  @p servers: [np].  Pure.
std::string tensorflow_config(const MappedRank& rank, const std::vector<ServerAddress>& servers);

/// The variables that srun sets for its tasks: SLURM_PROCID and so on.  Pure.  Without them ranks would read the batch
/// script's.
std::map<std::string, std::string> slurm_variables(const JobMap& map, const MappedRank& rank);

}  // namespace hvd::launcher
