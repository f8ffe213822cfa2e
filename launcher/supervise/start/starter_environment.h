/// @file starter_environment.h — the environment that the starter of the ranks gets: mpirun and through it the remote
/// agents, or a host daemon.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "launcher/job/job.h"
#include "launcher/start/host_daemons.h"
#include "wire/channel/channel.h"

namespace hvd::launcher {

/// mpirun's: our own environment without what would mislead it, the job's keys, and for remote hosts what the agents
/// need (remote/remote_agent.h).  Looks at the versions on this host when there are remote ones.
/// @param folder  the job's; mpirun's session folder goes there too
std::map<std::string, std::string> mpirun_environment(const Job& job, const std::string& folder,
                                                      const wire::KeyPair& server, const wire::KeyPair& client);

/// The same for this host's daemon.  Its OMPI_* variables reach the ranks.
std::map<std::string, std::string> daemon_environment(const Job& job, const std::string& folder,
                                                      const wire::KeyPair& server, const wire::KeyPair& client);

/// The same for one host, and these ranks there.
DaemonStart daemon_start(const Job& job, const std::map<std::string, std::string>& environment, int host,
                         const std::vector<int>& ranks);

/// For each host of the job, how its daemon is started.
/// @param environment  daemon_environment(), with what the listener added
std::vector<DaemonStart> daemon_starts(const Job& job, const std::map<std::string, std::string>& environment);

}  // namespace hvd::launcher
