#include "launcher/supervise/start/job_environment.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/environment.h"

namespace hvd::launcher {
namespace {

bool is_one_of(std::string_view name, auto&& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// A variable that mpirun, srun, hvdrank or torchrun sets for each rank.
bool marks_a_rank(std::string_view name) {
  static constexpr std::string_view names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "HVD_LINK_FD",
                                               "TORCHELASTIC_RUN_ID"};
  return is_one_of(name, names);
}

bool of_a_rank(std::string_view name) {
  static constexpr std::string_view places[] = {"OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX"};  // of the installation
  if (is_one_of(name, places)) return false;
  for (const std::string_view prefix : {"OMPI_", "OPAL_", "ORTE_", "PMIX_", "PMI_", "PRTE_", "TORCHELASTIC_"})
    if (name.starts_with(prefix)) return true;
  static constexpr std::string_view ours[] = {"HVD_JOB",
                                              "HVD_RANK",
                                              "HVD_SIZE",
                                              "HVD_LOCAL_RANK",
                                              "HVD_LOCAL_SIZE",
                                              "HVD_CROSS_RANK",
                                              "HVD_CROSS_SIZE",
                                              "HVD_HOST",
                                              "HVD_LINK_FD",
                                              "HVD_STACK_FD",
                                              "HVD_KEY_FD",
                                              "HVD_STATUS_FD",
                                              "HVD_RECORDER_FD",
                                              "HVD_GPU",
                                              "HVD_INIT",
                                              "HVD_STACK_SIGNAL",
                                              "HVD_TIMELINE_COLLECT",
                                              "HVD_ELASTIC_LATE",
                                              "HVD_PROGRAMS",
                                              "HVD_MEETING_FD",
                                              "HVD_WATCH",
                                              "HOROVOD_ELASTIC",
                                              "HOROVOD_CONTROLLER",
                                              "HOROVOD_RANK",
                                              "HOROVOD_SIZE",
                                              "HOROVOD_LOCAL_RANK",
                                              "HOROVOD_LOCAL_SIZE",
                                              "HOROVOD_CROSS_RANK",
                                              "HOROVOD_CROSS_SIZE",
                                              "HOROVOD_HOSTNAME"};
  static constexpr std::string_view torchruns[] = {"RANK",
                                                   "WORLD_SIZE",
                                                   "LOCAL_RANK",
                                                   "LOCAL_WORLD_SIZE",
                                                   "GROUP_RANK",
                                                   "GROUP_WORLD_SIZE",
                                                   "ROLE_NAME",
                                                   "ROLE_RANK",
                                                   "ROLE_WORLD_SIZE",
                                                   "MASTER_ADDR",
                                                   "MASTER_PORT",
                                                   "JAX_COORDINATOR_ADDRESS",
                                                   "JAX_COORDINATOR_BIND_ADDRESS",
                                                   "TF_CONFIG"};
  return is_one_of(name, ours) || is_one_of(name, torchruns);
}

std::string_view name_in(std::string_view line) { return line.substr(0, line.find('=')); }

}  // namespace

std::vector<std::string> job_environment(std::vector<std::string> lines) {
  if (std::any_of(lines.begin(), lines.end(), [](const std::string& line) { return marks_a_rank(name_in(line)); }))
    std::erase_if(lines, [](const std::string& line) { return of_a_rank(name_in(line)); });
  return lines;
}

std::vector<std::string> job_environment() {
  std::vector<std::string> lines;
  for (char** entry = environment_block(); *entry; ++entry) lines.emplace_back(*entry);
  return job_environment(std::move(lines));
}

}  // namespace hvd::launcher
