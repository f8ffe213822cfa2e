/// @file script_servers.h — addresses for servers that the scripts' libraries start.
///
/// torch starts a store in rank 0, JAX a coordinator in rank 0, TensorFlow a server in each rank.
#pragma once
#include <string>
#include <vector>

#include "base/file.h"
#include "launcher/job/job.h"

namespace hvd::launcher {

/// A TCP port that is kept free for a rank.  hvdrun binds the port, so that the kernel gives it to no program that asks
/// for any port.  hvdrun does not listen, so that the rank's bind() succeeds: both set SO_REUSEADDR, as servers do.
class HeldPort {
 public:
  /// Throws Error{unavailable} when no port is free.
  HeldPort();
  int number() const { return number_; }

 private:
  Fd socket_;
  int number_ = 0;
};

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

/// A port for a rank on another host, where hvdrun cannot hold one.  The number is below those that kernels choose, and
/// differs by job and @p purpose.
int port_on_another_host(const std::string& job_id, const std::string& purpose);

}  // namespace hvd::launcher
