/// @file script_servers.h — addresses for the servers that scripts' own libraries start, so that their ranks find each
/// other: torch's store and JAX's coordinator in rank 0, TensorFlow's server in each rank.
#pragma once
#include <string>
#include <vector>

#include "base/file.h"
#include "launcher/job/job.h"

namespace hvd::launcher {

/// A TCP port that is kept free for a rank: bound here, so that the kernel gives it to nobody who asks for any port,
/// but not listening, so that the rank's own bind() succeeds (both with SO_REUSEADDR, as all servers set it).
class HeldPort {
 public:
  /// Throws Error{unavailable} where no port is to be had.
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
  std::vector<HeldPort> held{};             ///< those of ranks on this host; keep them while the job runs
};

ScriptServers script_servers(const Job& job, const std::string& job_id);

/// A port for a rank on another host, which cannot be held from here: below those that kernels give away by themselves,
/// and another one for each job and @p purpose.
int port_on_another_host(const std::string& job_id, const std::string& purpose);

}  // namespace hvd::launcher
