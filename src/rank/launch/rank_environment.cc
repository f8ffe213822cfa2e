#include "rank/launch/rank_environment.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/environment.h"
#include "base/error.h"
#include "base/text.h"
#include "rank/launch/binding.h"

namespace hvd::rank {
namespace {

std::string get(const char* name) {
  const char* value = environment_value(name);
  return value ? value : "";
}

/// Removes a variable, and overwrites its value in the memory that the kernel shows as /proc/PID/environ.
void scrub(const char* name) {
  if (const char* value = environment_value(name)) explicit_bzero(const_cast<char*>(value), std::strlen(value));
  unsetenv(name);
}

int launcher_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const auto n = to_integer(get(name)); n && *n >= 0 && *n < 1 << 24) return static_cast<int>(*n);
  return -1;
}

constexpr const char* ours_only[] = {"HVD_JOB_KEYS", "HVD_JOB_DIR",        "HVD_FOLDER",
                                     "HVD_CONTROL",  "HVD_CONTROL_OTHERS", "HVD_SERVER_KEY"};
constexpr const char* mpiruns_only =
    "HVD_MPIRUN_ONLY";  ///< lists the variables that hvdrun has set only for its mpirun

/// HVD_HOST_SET_NAME in the daemon's environment is the value of NAME on this host.  An example is a folder of a Spark
/// executor.
constexpr std::string_view of_this_host = "HVD_HOST_SET_";

/// True if the launcher has set the variable for this process.  MPI_Init needs such variables to find its world.
bool is_launchers(const std::string& name) {
  for (const char* prefix : {"OMPI_", "OPAL_", "ORTE_", "PMIX_", "PMI_", "PRTE_"})
    if (name.starts_with(prefix)) return true;
  return false;
}

/// Open MPI does not start without 4 MiB (4.x) to 16 MiB (5.x) of shared memory for each rank.  With hvdrun the ranks
/// of a host hardly use this memory.  If /dev/shm is too small, as in a container, the memory moves to the job's
/// folder.
void spare_shared_memory(Environment& env, const Environment& mine, int local_size) {
  constexpr std::uint64_t of_a_rank = 17 << 20, ours = 64 << 20;
  struct statvfs about {};
  const auto folder = mine.find("PMIX_SERVER_TMPDIR");
  if (folder == mine.end() || statvfs("/dev/shm", &about) != 0) return;
  if (std::uint64_t{about.f_bavail} * about.f_frsize >= static_cast<std::uint64_t>(local_size) * of_a_rank + ours)
    return;
  for (const char* name : {"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"})
    env.emplace(name, folder->second);
}

}  // namespace

LaunchContext take_launch_context() {
  LaunchContext c = take_daemon_context();
  c.rank = launcher_rank();
  if (c.rank < 0)
    throw Error(Code::usage, "hvdrank", "mpirun set none of OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, SLURM_PROCID");
  return c;
}

LaunchContext take_daemon_context() {
  LaunchContext c;
  c.job = get("HVD_JOB");
  c.server_key = get("HVD_SERVER_KEY");
  const std::string keys = get("HVD_JOB_KEYS");
  scrub("HVD_JOB_KEYS");
  if (keys.size() != 81 || /* public:secret; Z85 may hold ':' too */ c.server_key.size() != 40)
    throw Error(Code::usage, "hvdrank", "is started by hvdrun, not by hand", "run: hvdrun -np 2 train.py");
  c.client = {keys.substr(0, 40), keys.substr(41)};
  c.host = get("HVD_HOST");
  if (c.host.empty()) {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    c.host = name;
  }
  const std::string folder = get("HVD_JOB_DIR");
  const auto lies_there = [&](const char* name) { return access((folder + name).c_str(), W_OK) == 0; };
  c.local = true;
  if (!folder.empty() && lies_there("/local.sock")) {
    c.addresses = {"unix://" + folder + "/local.sock"};
  } else if (!folder.empty() && lies_there("/control.sock")) {
    c.addresses = {"ipc://" + folder + "/control.sock"};
  } else {
    c.local = false;
    c.addresses = words(get("HVD_CONTROL"));
    c.other_addresses = words(get("HVD_CONTROL_OTHERS"));
    c.folder = get("HVD_FOLDER");
  }
  if (c.addresses.empty()) throw Error(Code::usage, "hvdrank", "HVD_CONTROL is empty: no address of hvdrun to reach");
  return c;
}

Environment current_environment() {
  Environment out;
  for (char** entry = environment_block(); *entry; ++entry)
    if (const std::string text = *entry; text.find('=') != std::string::npos)
      out.emplace(text.substr(0, text.find('=')), text.substr(text.find('=') + 1));
  return out;
}

Environment rank_environment(const wire::RankManifest& m, const Environment& mine, const Binding& binding) {
  Environment env = m.env;
  const auto listed = mine.find(mpiruns_only);
  const std::vector<std::string> not_theirs = words(listed == mine.end() ? "" : listed->second);
  for (const auto& [name, value] : mine)
    if (is_launchers(name) && std::find(not_theirs.begin(), not_theirs.end(), name) == not_theirs.end())
      env[name] = value;
  for (const auto& [name, value] : mine)
    if (name.starts_with(of_this_host)) env[name.substr(of_this_host.size())] = value;
  for (const char* name : ours_only) env.erase(name);
  env["HVD_JOB"] = m.job;
  env["HVD_RANK"] = std::to_string(m.rank);
  env["HVD_SIZE"] = std::to_string(m.size);
  env["HVD_LOCAL_RANK"] = std::to_string(m.local_rank);
  env["HVD_LOCAL_SIZE"] = std::to_string(m.local_size);
  env["HVD_CROSS_RANK"] = std::to_string(m.cross_rank);
  env["HVD_CROSS_SIZE"] = std::to_string(m.cross_size);
  env["HVD_HOST"] = m.host;
  env.emplace("OMP_NUM_THREADS", std::to_string(binding.threads));
  env.erase("HVD_TIMELINE_COLLECT");
  if (m.timeline) env["HVD_TIMELINE_COLLECT"] = "1";
  // hvdrun sends CUDA_VISIBLE_DEVICES only to its own host.  On other hosts, the host's value counts.
  if (const auto own = mine.find("CUDA_VISIBLE_DEVICES"); own != mine.end()) env.insert(*own);
  spare_shared_memory(env, mine, m.local_size);
  if (binding.visible_gpus) {
    env["CUDA_VISIBLE_DEVICES"] = *binding.visible_gpus;
    env.emplace("JAX_LOCAL_DEVICE_IDS", "0");  // by default JAX uses the local rank
  }
  env.erase("HVD_GPU");
  if (!binding.gpu.empty()) {
    env["HVD_GPU"] = binding.gpu;
    env.emplace("CUDA_DEVICE_ORDER", "PCI_BUS_ID");  // the plan's order
  }
  // By default Python writes only whole blocks to a pipe.  Users expect output at once.
  if (m.payload.kind != wire::PayloadKind::command) env.emplace("PYTHONUNBUFFERED", "1");
  return env;
}

}  // namespace hvd::rank
