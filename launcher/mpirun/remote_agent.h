/// @file remote_agent.h — hvdrun as the remote agent of mpirun: it starts a daemon on a remote host through ssh.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace hvd::launcher {

/// The settings that hvdrun passes to its agents, through mpirun's environment.
struct AgentTask {
  std::vector<std::string> ssh;  ///< the program that connects to a host, and its options
  bool seal = false;             ///< the connection is not encrypted, so munge seals the secret
  std::string cwd;               ///< working folder of the job
  std::string preflight;         ///< shell text that runs before the daemon's command (remote/preflight.h)
  std::string log_folder;        ///< gets one file for each host, with the output of ssh and the daemon
};
void add_agent_variables(const AgentTask& task, std::map<std::string, std::string>* environment);

/// Becomes ssh; returns only on failure.
/// @param args  the host, then the daemon's command as pieces of shell text
int remote_agent(const std::vector<std::string>& args);

}  // namespace hvd::launcher
