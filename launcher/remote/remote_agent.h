/// @file remote_agent.h — hvdrun as mpirun's remote agent: starts a daemon on a remote host through ssh.
///
/// The job's secret goes to the remote shell's stdin, never into an argument vector or over a plain connection.
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

/// What hvdrun tells its agents through mpirun's environment.
struct AgentVariables {
  static constexpr const char* ssh = "HVD_AGENT_SSH";    ///< words, blank-separated: program and options
  static constexpr const char* seal = "HVD_AGENT_SEAL";  ///< "munge": the way is not encrypted, seal the secret
  static constexpr const char* cwd = "HVD_AGENT_CWD";    ///< working folder of the job
  static constexpr const char* preflight = "HVD_AGENT_PREFLIGHT";  ///< shell text that comes first (remote/preflight.h)
  static constexpr const char* log_folder = "HVD_AGENT_LOGS";      ///< one file a host: what ssh and the daemon said
};

/// @param args  the host, then the daemon's command as pieces of shell text.  Becomes ssh; returns only on failure.
int remote_agent(const std::vector<std::string>& args);

/// The shell text for the remote /bin/sh.  Pure.
/// @param preflight shell text that ends the shell when something is wrong, and sets $hvd_rank
/// @param job_keys  shell text: the quoted secret, or what unseals it there
std::string remote_script(const std::string& preflight, const std::string& host, const std::string& cwd,
                          const std::string& job_keys, const std::vector<std::string>& daemon);

/// Shell text that unseals a munge credential: only this user can, once a host, for five minutes.  Pure.
std::string unseal_text(const std::string& credential);

/// The whole command that runs a shell on @p host: "{host}" in @p words is replaced; without one the host comes after
/// "--", as ssh has it.  Pure.
std::vector<std::string> shell_on(const std::vector<std::string>& words, const std::string& host);

/// ssh's command line up to the host, without the program's own checks.  Pure.
std::vector<std::string> ssh_command(const std::string& program, const std::string& port, const std::string& identity,
                                     int connect_timeout_seconds);

}  // namespace hvd::launcher
