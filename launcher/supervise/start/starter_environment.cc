#include "launcher/supervise/start/starter_environment.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "launcher/hosts/resource_manager.h"
#include "launcher/remote/preflight.h"
#include "launcher/remote/remote_agent.h"
#include "launcher/supervise/start/job_environment.h"

namespace hvd::launcher {

namespace {

/// What the user set counts, and goes to the ranks.
void add_quick_start(const Job& job, std::map<std::string, std::string>* env) {
  std::vector<std::string> ours;
  for (const auto& [name, value] : quick_start(job.mpirun.flavour))
    if (env->try_emplace(name, value).second) ours.push_back(name);
  (*env)[own_variables] = join(ours, " ");
}

std::string preflight_text(const Job& job) {
  // Asking mpirun for its version takes longer than all the rest, and without it the versions may differ.
  const std::string mpirun = job.launcher.kind == LauncherKind::mpirun ? job.mpirun.program : "";
  Preflight here = look_here(job.rank_program, mpirun, job.python, job.payload.wire.kind == wire::PayloadKind::pickle);
  if (!job.settings.flag("allow-writable")) here.software_owners = job.software_owners;
  return preflight_script(here);
}

std::vector<std::string> ssh_words(const Job& job) {
  const std::optional<int> port = job.settings.integer("ssh-port");
  const int timeout = std::clamp(static_cast<int>(job.settings.number("start-timeout")) - 2, 1, 20);
  return ssh_command(job.settings.text("ssh-program"), port ? std::to_string(*port) : "",
                     job.settings.text("ssh-identity-file"), timeout);
}

/// Whether a shell can assign to it.  Scripts for other hosts export variables, and so does mpirun's own.
bool is_shell_name(std::string_view name) {
  const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), fits);
}

/// A parameter of MPI's under a name that no shell knows: Open MPI reads none such, and its text would run elsewhere.
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
  env["TMPDIR"] = folder;  // the starter's own session folder goes with the job's, however the job ends
  return env;
}

}  // namespace

std::map<std::string, std::string> daemon_environment(const Job& job, const std::string& folder,
                                                      const wire::KeyPair& server, const wire::KeyPair& client) {
  std::map<std::string, std::string> env = common_environment(folder, server, client);
  if (job.settings.flag("tcp")) {
    env["OMPI_MCA_pml"] = "ob1";
    env["OMPI_MCA_btl"] = job.mpirun.flavour == Flavour::openmpi4 ? "tcp,self,vader" : "tcp,self,sm";
  } else if (job.map.all_local()) {
    env.try_emplace("OMPI_MCA_btl", "^tcp,ofi");  // these would listen
  }
  if (const std::string nics = job.settings.text("network-interfaces"); !nics.empty())
    env["OMPI_MCA_btl_tcp_if_include"] = nics;
  return env;
}

std::map<std::string, std::string> mpirun_environment(const Job& job, const std::string& folder,
                                                      const wire::KeyPair& server, const wire::KeyPair& client) {
  std::map<std::string, std::string> env = common_environment(folder, server, client);
  if (job.map.all_local()) {
    env.try_emplace("HWLOC_PLUGINS_PATH",
                    folder);  // no plugins: they only find devices, and loading them takes 5 ms
    if (!job.settings.flag("tcp")) env.try_emplace("OMPI_MCA_btl", "^tcp,ofi");  // these would listen
    // The user's own words to mpirun may need any part of it.
    if (job.settings.text("mpi-args").empty() && job.settings.text("binding-args").empty()) add_quick_start(job, &env);
  }
  env.try_emplace("HWLOC_COMPONENTS", without_drivers);
  if (job.map.all_local()) return env;

  env[AgentVariables::cwd] = job.cwd;
  env[AgentVariables::log_folder] = folder;
  env[AgentVariables::preflight] = preflight_text(job);
  if (!job.launch_agent.empty()) {
    std::vector<std::string> agent;
    for (const std::string& w : job.launch_agent) agent.push_back(shell_quote(w));
    env[AgentVariables::ssh] = join(agent, " ");
    if (needs_seal(job.launch_agent)) env[AgentVariables::seal] = "munge";
    return env;
  }
  std::vector<std::string> quoted;
  for (const std::string& w : ssh_words(job)) quoted.push_back(shell_quote(w));
  env[AgentVariables::ssh] = join(quoted, " ");
  return env;
}

/// The shell text for a remote host's daemon.  @param keys  keys_text()
static std::string daemon_script(const Job& job, const std::map<std::string, std::string>& environment,
                                 const std::string& preflight, const std::string& keys, const std::string& host,
                                 const std::vector<int>& ranks) {
  std::string exports;
  for (const auto& [name, value] : environment)
    if (name == "HVD_CONTROL" || name == "HVD_SERVER_KEY" || name == "HVD_JOB" || name.starts_with("OMPI_MCA_"))
      exports += "export " + name + "=" + shell_quote(value) + "\n";
  std::vector<std::string> command = daemon_command("", ranks, "", job.elastic.has_value());
  command[0] = "\"$hvd_rank\"";
  if (!job.elastic && !job.mpirun.library_folder.empty()) command.push_back(shell_quote(job.mpirun.library_folder));
  return exports + remote_script(preflight, host, job.cwd, keys, command);
}

static DaemonStart daemon_start(const Job& job, const std::map<std::string, std::string>& environment,
                                const std::string& preflight, const MappedHost& host, const std::vector<int>& ranks) {
  if (host.local)
    return {host.name, daemon_command(job.rank_program, ranks, job.mpirun.library_folder, job.elastic.has_value()),
            environment, "", false};
  const std::vector<std::string> way = job.launch_agent.empty() ? ssh_words(job) : job.launch_agent;
  std::map<std::string, std::string> of_way = environment;  // which has no need of the job's (ssh's SendEnv)
  for (const char* name : {"HVD_JOB_KEYS", "HVD_JOB_DIR", "HVD_CONTROL", "HVD_SERVER_KEY"}) of_way.erase(name);
  std::vector<std::string> command = shell_on(way, host.name);
  const auto path = environment.find("PATH");
  if (command[0].find('/') == std::string::npos && path != environment.end())
    if (const std::string found = find_program(command[0], path->second); !found.empty()) command[0] = found;
  const std::string keys = keys_text(environment.at("HVD_JOB_KEYS"), needs_seal(job.launch_agent));
  return {host.name, std::move(command), std::move(of_way),
          daemon_script(job, environment, preflight, keys, host.name, ranks), !job.launch_agent.empty()};
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
  for (std::size_t h = 0; h < ranks.size(); ++h)
    starts.push_back(daemon_start(job, environment, preflight, job.map.hosts[h], ranks[h]));
  return starts;
}

}  // namespace hvd::launcher
