#include "launcher/job/launch_variables.h"

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace hvd::launcher {

std::map<std::string, std::string> torchrun_variables(const JobMap& map, const MappedRank& rank,
                                                      const ServerAddress& store, const std::string& job_id) {
  const std::string size = std::to_string(map.ranks.size());
  return {{"RANK", std::to_string(rank.rank)},
          {"WORLD_SIZE", size},
          {"LOCAL_RANK", std::to_string(rank.local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(rank.local_size)},
          {"GROUP_RANK", std::to_string(rank.host)},
          {"GROUP_WORLD_SIZE", std::to_string(map.hosts.size())},
          {"ROLE_NAME", "default"},
          {"ROLE_RANK", std::to_string(rank.rank)},
          {"ROLE_WORLD_SIZE", size},
          {"MASTER_ADDR", store.address},
          {"MASTER_PORT", std::to_string(store.port)},
          {"TORCHELASTIC_RUN_ID", job_id},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_MAX_RESTARTS", "0"},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"}};  // rank 0 serves the store itself
}

std::map<std::string, std::string> horovodrun_variables(const JobMap& map, const MappedRank& rank) {
  return {{"HOROVOD_RANK", std::to_string(rank.rank)},
          {"HOROVOD_SIZE", std::to_string(map.ranks.size())},
          {"HOROVOD_LOCAL_RANK", std::to_string(rank.local_rank)},
          {"HOROVOD_LOCAL_SIZE", std::to_string(rank.local_size)},
          {"HOROVOD_CROSS_RANK", std::to_string(rank.cross_rank)},
          {"HOROVOD_CROSS_SIZE", std::to_string(rank.cross_size)},
          {"HOROVOD_HOSTNAME", map.hosts[static_cast<std::size_t>(rank.host)].name}};
}

std::map<std::string, std::string> jax_variables(const ServerAddress& coordinator, bool has_mpi_names) {
  const std::string address = text_of(coordinator);
  std::map<std::string, std::string> env{{"JAX_COORDINATOR_ADDRESS", address}};
  // JAX recognises Open MPI by this variable, and then reads each rank's OMPI_COMM_WORLD_*.  Open MPI 4.1 and 5 were
  // tried: they do not connect to this address.
  if (has_mpi_names) env["OMPI_MCA_orte_hnp_uri"] = "4096.0;tcp://" + address;
  return env;
}

std::string tensorflow_config(const MappedRank& rank, const std::vector<ServerAddress>& servers) {
  std::vector<std::string> workers;
  for (const ServerAddress& server : servers) workers.push_back(text_of(server));
  return nlohmann::json{{"cluster", {{"worker", workers}}}, {"task", {{"type", "worker"}, {"index", rank.rank}}}}
      .dump();
}

std::map<std::string, std::string> slurm_variables(const JobMap& map, const MappedRank& rank) {
  const std::string size = std::to_string(map.ranks.size()), hosts = std::to_string(map.hosts.size());
  std::vector<std::string> names;
  for (const MappedHost& host : map.hosts) names.push_back(host.name);
  return {{"SLURM_PROCID", std::to_string(rank.rank)},
          {"SLURM_LOCALID", std::to_string(rank.local_rank)},
          {"SLURM_NODEID", std::to_string(rank.host)},
          {"SLURM_NTASKS", size},
          {"SLURM_NPROCS", size},
          {"SLURM_STEP_NUM_TASKS", size},
          {"SLURM_STEP_NUM_NODES", hosts},
          {"SLURM_STEP_NODELIST", join(names, ",")}};
}

}  // namespace hvd::launcher
