/// @file remote_agent.h — hvdrun as the remote agent of mpirun: it starts a daemon on a remote host through ssh.
///
/// The job's secret goes to the remote shell's stdin, never into an argument vector or over a plain connection.
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

/// The variables by which hvdrun tells its agents, through mpirun's environment.
struct AgentVariables {
  static constexpr const char* ssh = "HVD_AGENT_SSH";    ///< words, blank-separated: program and options
  static constexpr const char* seal = "HVD_AGENT_SEAL";  ///< "munge": the way is not encrypted, seal the secret
  static constexpr const char* cwd = "HVD_AGENT_CWD";    ///< working folder of the job
  static constexpr const char* preflight = "HVD_AGENT_PREFLIGHT";  ///< shell text that comes first (remote/preflight.h)
  static constexpr const char* log_folder = "HVD_AGENT_LOGS";      ///< one file a host: what ssh and the daemon said
};

/// What a line begins with that says that the program of the way to a host could not be run at all.
inline constexpr const char* cannot_run_mark = "hvdrun: cannot run ";

/// Becomes ssh; returns only on failure.
/// @param args  the host, then the daemon's command as pieces of shell text
int remote_agent(const std::vector<std::string>& args);

/// The shell text for the remote /bin/sh.  Pure.
/// @param preflight shell text that ends the shell when something is wrong, and sets $hvd_rank
/// @param job_keys  shell text: the quoted secret, or a command that unseals it there
std::string remote_script(const std::string& preflight, const std::string& host, const std::string& cwd,
                          const std::string& job_keys, const std::vector<std::string>& daemon);

/// Shell text for remote_script(): the job's keys as they are, for a way that is encrypted; or else sealed by munge.
/// Throws Error{unavailable} where munge cannot.
std::string keys_text(const std::string& job_keys, bool sealed);

/// Whether what goes to the shell's standard input there crosses the network in clear: srun's way.
bool needs_seal(const std::vector<std::string>& launch_agent);

/// Shell text that unseals a munge credential.  Only this user can do so, once on each host, for five minutes.  Pure.
std::string unseal_text(const std::string& credential);

/// The whole command that runs a shell on @p host.  "{host}" in @p words is replaced; where it does not occur, "--" and
/// the host are appended, as for ssh.  Pure.
std::vector<std::string> shell_on(const std::vector<std::string>& words, const std::string& host);

/// The command line of ssh up to the host.  Pure.
std::vector<std::string> ssh_command(const std::string& program, const std::string& port, const std::string& identity,
                                     int connect_timeout_seconds);

}  // namespace hvd::launcher
