/// @file tcp_transport.h — the transport over TCP.
///
/// Another transport brings the ranks together: it carries what they tell one another while a world is being formed
/// (Tag::exchange, Tag::share), and all else goes over connections of this one.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "transport/tcp/mesh.h"
#include "transport/transport.h"

namespace hvd::transport::tcp {

struct TcpOptions {
  std::optional<JobKey> key;  ///< the job's; without it rank 0 makes one, which travels by the other transport
  std::string interfaces;     ///< that may be used (listen_address.h); empty: all
  bool filter = true;         ///< lets only the job's hosts connect
  int bulk_lanes = 1;
  double limit_seconds = 60;
  double again_seconds = 0.05, leave_seconds = 1;  ///< as in MeshPlan
  /// The first ranks of the hosts try to connect in a ring; where that fails there is no TCP.
  bool needs_trial = false;
  SocketCalls* calls = nullptr;  ///< must outlive the transport; nullptr: the system's
};

struct OpenResult {
  std::unique_ptr<Transport> transport;
  std::string refused;  ///< why the trial has failed, with a rank's name: transport is the one that was given
};

/// Collective over @p ranks_by's ranks, by its exchange().  Throws Error: unavailable, usage, timeout.
OpenResult open(std::unique_ptr<Transport> ranks_by, const TcpOptions& options);

/// Why there can be no TCP in this process: OpenSSL is not there.  Empty: there can.
std::string reason_against();

/// The key that the guard has left for its rank, HVD_KEY_FD; nullopt: no guard has started this process.
std::optional<JobKey> job_key(int fd);

}  // namespace hvd::transport::tcp
