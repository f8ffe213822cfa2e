/// @file starter_environment.h — the environment of the ranks' starter: a host daemon, or mpirun and its remote agents.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "launcher/job/job.h"
#include "launcher/start/host_daemons.h"
#include "wire/channel/channel.h"

namespace hvd::launcher {

/// hvdrun's own environment without variables that mislead the starter, with the job's keys and the starter's settings.
/// When mpirun starts ranks on other hosts, the versions on this host are looked up.
/// @param folder  the job's; mpirun's session folder goes there too
std::map<std::string, std::string> starter_environment(const Job& job, const std::string& folder,
                                                       const wire::KeyPair& server, const wire::KeyPair& client);

/// Returns the command that starts the daemon of one host. @p ranks: the ranks there.
DaemonStart daemon_start(const Job& job, const std::map<std::string, std::string>& environment, int host,
                         const std::vector<int>& ranks);

/// Returns the command that starts the daemon, for each host of the job.
/// @param environment  starter_environment(), with the listener's additions
std::vector<DaemonStart> daemon_starts(const Job& job, const std::map<std::string, std::string>& environment);

}  // namespace hvd::launcher
