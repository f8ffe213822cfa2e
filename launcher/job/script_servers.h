/// @file script_servers.h — addresses for servers that the scripts' libraries start.
///
/// torch starts a store in rank 0, JAX a coordinator in rank 0, TensorFlow a server in each rank.
#pragma once
#include <string>
#include <vector>

#include "base/network/held_port.h"
#include "launcher/job/job.h"

namespace hvd::launcher {

struct ServerAddress {
  std::string address;  ///< numeric, or a host's name
  int port = 0;
};

/// address:port; an IPv6 address in brackets.
std::string text_of(const ServerAddress& server);

struct ScriptServers {
  ServerAddress torch, jax;                 ///< in rank 0
  std::vector<ServerAddress> tensorflow{};  ///< [np], by rank; empty without --tf-config
  std::vector<HeldPort> held{};             ///< for ranks on this host; keep them while the job runs
};

ScriptServers script_servers(const Job& job, const std::string& job_id);

/// Takes over the ports that rank 0's guard holds on its host: wire::Hello::ports.  None: the servers stay as they are.
void use_ports_of_rank_0(ScriptServers& servers, const std::vector<int>& ports);

/// A port for a rank on another host, until a guard holds one there.  The number is below those that kernels choose,
/// and differs by job and @p purpose.
int port_on_another_host(const std::string& job_id, const std::string& purpose);

}  // namespace hvd::launcher
