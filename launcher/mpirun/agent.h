/// @file agent.h — hvdrun as mpirun's remote agent: starts a daemon on a remote host through ssh.
///
/// The job's secret goes to the remote shell's stdin, never into an argument vector or over a plain connection.
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

/// What hvdrun tells its agents through mpirun's environment.
struct AgentVariables {
  static constexpr const char* ssh = "HVD_AGENT_SSH";          ///< words, blank-separated: program and options
  static constexpr const char* cwd = "HVD_AGENT_CWD";          ///< working folder of the job
  static constexpr const char* log_folder = "HVD_AGENT_LOGS";  ///< one file a host: what ssh and the daemon said
};

/// @param args  the host, then the daemon's command as pieces of shell text.  Becomes ssh; returns only on failure.
int remote_agent(const std::vector<std::string>& args);

/// The shell text for the remote /bin/sh.  Pure.
std::string remote_script(const std::string& host, const std::string& cwd, const std::string& job_keys,
                          const std::vector<std::string>& daemon);

/// ssh's command line up to the host, without the program's own checks.  Pure.
std::vector<std::string> ssh_command(const std::string& program, const std::string& port, const std::string& identity,
                                     int connect_timeout_seconds);

}  // namespace hvd::launcher
