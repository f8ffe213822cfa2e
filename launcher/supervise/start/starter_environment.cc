#include "launcher/supervise/start/starter_environment.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "launcher/hosts/resource_manager.h"
#include "launcher/mpirun/mpirun_environment.h"
#include "launcher/mpirun/remote_agent.h"
#include "launcher/process/find_program.h"
#include "launcher/remote/preflight.h"
#include "launcher/start/remote_shell.h"
#include "launcher/supervise/start/job_environment.h"

namespace hvd::launcher {

namespace {

std::string preflight_text(const Job& job) {
  // Only a job under mpirun needs equal versions of Open MPI.  Asking mpirun takes longer than all other questions.
  const std::string mpirun = job.launcher.kind == LauncherKind::mpirun ? job.mpirun.program : "";
  Preflight here = look_here(job.rank_program, mpirun, job.python, job.payload.wire.kind == wire::PayloadKind::pickle);
  if (!job.settings.flag("allow-writable")) here.software_owners = job.software_owners;
  // Another user could guess the name of the daemon's session folder, and make it first.  So the session folder lies in
  // a folder that only this user can enter.
  return preflight_script(here, true);
}

std::vector<std::string> ssh_words(const Job& job) {
  const std::optional<int> port = job.settings.integer("ssh-port");
  const int timeout = std::clamp(static_cast<int>(job.settings.number("start-timeout")) - 2, 1, 20);
  return ssh_command(job.settings.text("ssh-program"), port ? std::to_string(*port) : "",
                     job.settings.text("ssh-identity-file"), timeout);
}

/// True for a name that a shell can assign to.  Scripts for other hosts export variables, and so does mpirun's script.
bool is_shell_name(std::string_view name) {
  const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), fits);
}

/// True for an MPI parameter whose name is no shell name.  Open MPI has no such parameter, and another host's shell
/// would run its text as a command.
bool is_bad_parameter(std::string_view name) {
  const bool is_parameter =
      name.starts_with("OMPI_MCA_") || name.starts_with("PRTE_MCA_") || name.starts_with("PMIX_MCA_");
  return is_parameter && !is_shell_name(name);
}

std::map<std::string, std::string> common_environment(const std::string& folder, const wire::KeyPair& server,
                                                      const wire::KeyPair& client) {
  std::map<std::string, std::string> env;
  for (const std::string& line : job_environment())
    if (const std::size_t equals = line.find('='); equals != std::string::npos &&
                                                   !belongs_to_manager(line.substr(0, equals)) &&
                                                   !is_bad_parameter(std::string_view(line).substr(0, equals)))
      env[line.substr(0, equals)] = line.substr(equals + 1);
  env["HVD_SERVER_KEY"] = server.public_key;
  env["HVD_JOB_KEYS"] = client.public_key + ":" + client.secret_key;
  env["HVD_JOB_DIR"] = folder;
  env["TMPDIR"] = folder;  // so the starter's session folder is removed with the job's
  return env;
}

/// Adds variables for Open MPI in the ranks: host daemons pass OMPI_* variables on.
void add_rank_variables(const Job& job, std::map<std::string, std::string>* env) {
  if (job.settings.flag("tcp")) {
    (*env)["OMPI_MCA_pml"] = "ob1";
    (*env)["OMPI_MCA_btl"] = job.mpirun.flavour == Flavour::openmpi4 ? "tcp,self,vader" : "tcp,self,sm";
  } else if (job.map.all_local()) {
    env->try_emplace("OMPI_MCA_btl", "^tcp,ofi");  // these components would listen
  }
  if (const std::string nics = job.settings.text("network-interfaces"); !nics.empty())
    (*env)["OMPI_MCA_btl_tcp_if_include"] = nics;
}

/// The program that connects to a host, and its options.
std::vector<std::string> way_of(const Job& job) { return job.launch_agent.empty() ? ssh_words(job) : job.launch_agent; }

}  // namespace

std::map<std::string, std::string> starter_environment(const Job& job, const std::string& folder,
                                                       const wire::KeyPair& server, const wire::KeyPair& client) {
  std::map<std::string, std::string> env = common_environment(folder, server, client);
  if (job.launcher.kind == LauncherKind::daemons) {
    add_rank_variables(job, &env);
    return env;
  }
  add_mpirun_variables(job.mpirun, mpirun_options(job.settings, "", ""), job.map.all_local(), folder, &env);
  if (!job.map.all_local())
    add_agent_variables({way_of(job), needs_seal(job.launch_agent), job.cwd, preflight_text(job), folder}, &env);
  return env;
}

/// The shell text for a remote host's daemon.  @param keys  keys_text()
/// @param ranks  empty: $hvd_ranks names them, and HVD_HOST the host (shared_step.h)
static std::string daemon_script(const Job& job, const std::map<std::string, std::string>& environment,
                                 const std::string& preflight, const std::string& keys, const std::string& host,
                                 const std::vector<int>& ranks) {
  std::string exports;
  for (const auto& [name, value] : environment)
    if (name == "HVD_CONTROL" || name == "HVD_CONTROL_OTHERS" || name == "HVD_SERVER_KEY" || name == "HVD_JOB" ||
        name.starts_with("OMPI_MCA_"))
      exports += "export " + name + "=" + shell_quote(value) + "\n";
  std::vector<std::string> command = daemon_command("", ranks, "", job.elastic.has_value());
  command[0] = "\"$hvd_rank\"";
  if (ranks.empty()) command[2] = "\"$hvd_ranks\"";
  if (!job.elastic && !job.mpirun.library_folder.empty()) command.push_back(shell_quote(job.mpirun.library_folder));
  return exports + remote_script(preflight, host, job.cwd, keys, command);
}

/// Without the job's own variables: ssh might send them (SendEnv).
static std::map<std::string, std::string> environment_of_way(std::map<std::string, std::string> environment) {
  for (const char* name :
       {"HVD_JOB_KEYS", "HVD_JOB_DIR", "HVD_FOLDER", "HVD_CONTROL", "HVD_CONTROL_OTHERS", "HVD_SERVER_KEY"})
    environment.erase(name);
  return environment;
}

/// Replaces the program's name by its path, if PATH has the program.
static void find_first_word(std::vector<std::string>& command, const std::map<std::string, std::string>& environment) {
  const auto path = environment.find("PATH");
  if (command[0].find('/') != std::string::npos || path == environment.end()) return;
  if (const std::string found = find_program(command[0], path->second); !found.empty()) command[0] = found;
}

static DaemonStart daemon_start(const Job& job, const std::map<std::string, std::string>& environment,
                                const std::string& preflight, const MappedHost& host, const std::vector<int>& ranks) {
  if (host.local)
    return {host.name, daemon_command(job.rank_program, ranks, job.mpirun.library_folder, job.elastic.has_value()),
            environment, "", false};
  std::vector<std::string> command = shell_on(way_of(job), host.name);
  find_first_word(command, environment);
  const std::string keys = keys_text(environment.at("HVD_JOB_KEYS"), needs_seal(job.launch_agent));
  return {host.name, std::move(command), environment_of_way(environment),
          daemon_script(job, environment, preflight, keys, host.name, ranks), !job.launch_agent.empty()};
}

/// Returns one srun command that starts the daemons of all other hosts.  Nothing: each host gets its own command.
static std::optional<DaemonStart> shared_start(const Job& job, const std::map<std::string, std::string>& environment,
                                               const std::string& preflight,
                                               const std::vector<std::vector<int>>& ranks) {
  if (job.elastic) return std::nullopt;
  std::vector<std::pair<std::string, std::string>> of_hosts;
  std::vector<std::string> hosts;
  for (std::size_t h = 0; h < ranks.size(); ++h) {
    if (job.map.hosts[h].local || ranks[h].empty()) continue;
    std::vector<std::string> its;
    for (const int rank : ranks[h]) its.push_back(std::to_string(rank));
    of_hosts.emplace_back(job.map.hosts[h].name, join(its, ","));
    hosts.push_back(job.map.hosts[h].name);
  }
  std::vector<std::string> command = shared_step_command(job.launch_agent, hosts);
  if (hosts.size() < 2 || command.empty()) return std::nullopt;
  find_first_word(command, environment);
  const std::string keys = keys_text(environment.at("HVD_JOB_KEYS"), true);
  const std::string script = daemon_script(job, environment, preflight, keys, "", {});
  return DaemonStart{"",   std::move(command), environment_of_way(environment), shared_step_script(of_hosts, script),
                     true, std::move(hosts)};
}

DaemonStart daemon_start(const Job& job, const std::map<std::string, std::string>& environment, int host,
                         const std::vector<int>& ranks) {
  const MappedHost& there = job.map.hosts[static_cast<std::size_t>(host)];
  return daemon_start(job, environment, there.local ? "" : preflight_text(job), there, ranks);
}

std::vector<DaemonStart> daemon_starts(const Job& job, const std::map<std::string, std::string>& environment) {
  std::vector<std::vector<int>> ranks(job.map.hosts.size());
  for (const MappedRank& r : job.map.ranks) ranks[static_cast<std::size_t>(r.host)].push_back(r.rank);
  const std::string preflight = job.map.all_local() ? "" : preflight_text(job);
  std::vector<DaemonStart> starts;
  std::optional<DaemonStart> shared = shared_start(job, environment, preflight, ranks);
  for (std::size_t h = 0; h < ranks.size(); ++h)
    if (job.map.hosts[h].local || !shared)
      starts.push_back(daemon_start(job, environment, preflight, job.map.hosts[h], ranks[h]));
  if (shared) starts.push_back(std::move(*shared));
  return starts;
}

}  // namespace hvd::launcher
