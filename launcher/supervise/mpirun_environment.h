/// @file mpirun_environment.h — the environment that mpirun is started with, and through it the remote agents.
#pragma once
#include <map>
#include <string>

#include "launcher/job/job.h"
#include "wire/channel.h"

namespace hvd::launcher {

/// Our own environment without what would mislead mpirun, the job's keys, and for remote hosts what the agents need
/// (remote/remote_agent.h).  Looks at the versions on this host when there are remote ones.
/// @param folder  the job's; mpirun's session folder goes there too
std::map<std::string, std::string> mpirun_environment(const Job& job, const std::string& folder,
                                                      const wire::KeyPair& server, const wire::KeyPair& client);

}  // namespace hvd::launcher
