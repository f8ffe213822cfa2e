/// @file launch_variables.h — what ranks find in their environment when another launcher starts them, so that scripts
/// written for torchrun, or for Horovod's own launcher, run unchanged.
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

/// Those of `horovodrun --gloo`: HOROVOD_RANK and so on.  Pure.
std::map<std::string, std::string> horovodrun_variables(const JobMap& map, const MappedRank& rank);

/// What jax.distributed.initialize() finds out by itself.  Pure.
std::map<std::string, std::string> jax_variables(const JobMap& map, const ServerAddress& coordinator);

/// TF_CONFIG's value for tf.distribute's MultiWorkerMirroredStrategy: all ranks are workers.  @p servers: [np].  Pure.
std::string tensorflow_config(const MappedRank& rank, const std::vector<ServerAddress>& servers);

/// What srun tells its tasks: SLURM_PROCID and so on.  Without them ranks would take those of the batch script for
/// theirs. Pure.
std::map<std::string, std::string> slurm_variables(const JobMap& map, const MappedRank& rank);

}  // namespace hvd::launcher
