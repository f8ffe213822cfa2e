#include "launcher/supervise/start/rank_manifests.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "base/text.h"
#include "launcher/job/launch_variables.h"
#include "launcher/job/outer_job.h"
#include "launcher/supervise/start/job_environment.h"

namespace hvd::launcher {
namespace {

/// Variables for scripts that were written for other launchers.  A rank's numbers are always set; addresses are set
/// only where the user has set none.
void add_launch_variables(std::map<std::string, std::string>& env, const Job& job, const MappedRank& rank,
                          const ManifestFacts& facts) {
  for (auto& [name, value] : torchrun_variables(job.map, rank, facts.servers.torch, facts.job_id))
    if (name.starts_with("MASTER_"))
      env.try_emplace(name, std::move(value));
    else
      env[name] = std::move(value);
  if (!env.contains("JAX_COORDINATOR_ADDRESS"))
    env.merge(jax_variables(facts.servers.jax, /* has_mpi_names: */ !job.elastic));
  if (!facts.servers.tensorflow.empty())
    env.try_emplace("TF_CONFIG", tensorflow_config(rank, facts.servers.tensorflow));
  if (env.contains("SLURM_JOB_ID"))
    for (auto& [name, value] : slurm_variables(job.map, rank)) env[name] = std::move(value);
}

/// This host's name, as its daemon knows it.  Another job's HVD_HOST is not the daemon's name.
std::string machine_name() {
  constexpr std::string_view given = "HVD_HOST=";
  for (const std::string& line : job_environment())
    if (line.starts_with(given) && line != given) return line.substr(given.size());
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// Sets provisional rank numbers and sizes for a worker. hvd.init() replaces them in each world.
void make_elastic(const Job& job, wire::RankManifest* m) {
  m->env["HOROVOD_ELASTIC"] = "1";
  const bool is_late = m->rank >= job.elastic->first;  // a late worker waits in init() until the others commit
  m->env["HVD_ELASTIC_LATE"] = is_late ? "1" : "0";
  m->env.try_emplace("HVD_INIT_TIMEOUT", is_late ? "1e6" : job.settings.text("elastic-timeout"));
  if (const auto& place = job.elastic->places.find(m->rank); place != job.elastic->places.end())
    m->env["HOROVOD_HOSTNAME"] = place->second.host;
  // A size above local_size means several hosts: their ranks get a key.
  m->size = std::max({m->rank, m->local_size, m->cross_size}) + 1;
  if (!job.elastic->may_spread) m->local_size = m->size;
}

/// "2,6": ranks of each program, for hvd.program_sets().
std::string sizes_of_programs(const Job& job) {
  std::vector<std::string> sizes;
  for (const Program& p : job.programs) sizes.push_back(std::to_string(p.ranks));
  return join(sizes, ",");
}

/// The variables that are this job's alone, for jobs that a rank starts.
std::string own_settings(const Job& job, const std::map<std::string, std::string>& env) {
  std::vector<std::string> names{"HVD_STATE_DIR", "HOROVOD_TIMELINE"};  // of the job, also if the user exports them
  for (const auto& [name, value] : job.settings.rank_variables()) names.push_back(name);
  if (job.elastic) names.push_back("HVD_INIT_TIMEOUT");
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return set_by_hvdrun(env, names);
}

std::size_t cores_of(const placement::Machine& machine) { return machine.cores.size(); }

}  // namespace

wire::RankManifest rank_manifest(const Job& job, const MappedRank& p, const ManifestFacts& facts) {
  wire::RankManifest m;
  m.job = facts.job_id;
  m.rank = p.rank, m.size = static_cast<int>(job.map.ranks.size());
  m.local_rank = p.local_rank, m.local_size = p.local_size;
  m.cross_rank = p.cross_rank, m.cross_size = p.cross_size;
  m.host = job.map.host_of(p.rank).name;
  m.cwd = job.cwd;
  m.env = rank_environment(job, p, facts.environment);
  add_launch_variables(m.env, job, p, facts);
  m.payload = payload_of(job, p.rank);
  if (m.payload.kind != wire::PayloadKind::command) m.python = job.python;
  if (!job.programs.empty()) m.env["HVD_PROGRAMS"] = sizes_of_programs(job);
  if (p.share) {
    const placement::RankResources& share = *p.share;
    const auto mode = *placement::gpu_mode(job.settings.text("gpus"));
    m.placement = {true, share.cpus, share.threads, "", placement::visible_devices(share, mode), share.memory_node};
    if (share.gpu) m.placement.gpu = share.gpu->uuid.empty() ? share.gpu->pci : share.gpu->uuid;
  }
  if (p.is_spare) m.placement.planned = true;  // a spare has no share of cores and GPUs
  m.placement.gpu_mode = job.settings.text("gpus");
  m.placement.share_gpus = job.settings.flag("share-gpus");
  m.placement.bind = job.settings.flag("bind");
  m.grace_seconds = job.settings.number("grace");
  m.collect_results = facts.results && job.settings.integer("results-of").value_or(p.rank) == p.rank;
  m.timeline = facts.timeline;
  m.trusted_only = !job.settings.flag("allow-writable");
  for (const uid_t uid : job.software_owners) m.software_owners.push_back(static_cast<int>(uid));
  m.input = job.settings.integer("stdin") == p.rank;
  if (job.elastic) make_elastic(job, &m);
  if (std::string own = own_settings(job, m.env); !own.empty()) m.env["HVD_SET_BY_HVDRUN"] = std::move(own);
  return m;
}

std::vector<wire::RankManifest> rank_manifests(const Job& job, const ManifestFacts& facts) {
  std::vector<wire::RankManifest> all;
  for (const MappedRank& p : job.map.ranks) all.push_back(rank_manifest(job, p, facts));
  return all;
}

wire::DaemonManifest daemon_manifest(const Job& job, const std::string& job_id) {
  wire::DaemonManifest all;
  all.job = job_id;
  all.pmix_namespace = "hvd-" + random_letters(26);
  for (const MappedHost& h : job.map.hosts) all.hosts.push_back({h.local ? machine_name() : h.name, {}});
  for (const MappedRank& r : job.map.ranks) all.hosts[static_cast<std::size_t>(r.host)].ranks.push_back(r.rank);
  for (std::size_t h = 0; h < job.map.hosts.size(); ++h)
    if (job.machines[h] && all.hosts[h].ranks.size() > cores_of(*job.machines[h])) all.oversubscribed = true;
  for (const Program& p : job.programs) all.programs.push_back(p.ranks);
  return all;
}

}  // namespace hvd::launcher
