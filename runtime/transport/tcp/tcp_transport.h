/// @file tcp_transport.h — the transport over sockets: TCP between hosts, unix sockets within one.
///
/// It stands alone.  Another means brings the ranks together once (a meeting by way of hvdrun, or MPI): each rank says
/// a text, and gets everybody's.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/tcp/carry/messages.h"
#include "transport/transport.h"

namespace hvd::transport::tcp {

struct TcpOptions {
  std::optional<JobKey> key;       ///< the job's; without it rank 0 makes one, which travels with what ranks say
  bool between_hosts = true;       ///< other hosts may call; else there is no TCP socket
  std::string interfaces;          ///< that may be used (listen_address.h); empty: all
  std::vector<CardAddress> cards;  ///< instead of the host's: for tests; empty: the host's
  bool filter = true;              ///< lets only the job's hosts connect
  bool threads_multiple = true;    ///< as Transport has it
  bool encrypts = false;           ///< what travels to other hosts; alike on all ranks
  bool local_sockets = true;       ///< unix sockets between ranks of one host; else TCP there too
  int bulk_lanes = 1;
  double limit_seconds = 60;
  double again_seconds = 0.05, leave_seconds = 1, handshake_seconds = 5;  ///< as in LinkPlan
  /// The first ranks of the hosts try to connect in a ring; where one cannot be reached there is no TCP.
  bool needs_trial = false;
  double trial_seconds = 10;  ///< of one round
  /// Once it is raised all messages fail with peer_lost, and the connections end; null: nobody raises one.
  std::shared_ptr<const Revocation> revocation;
  SocketCalls* calls = nullptr;  ///< must outlive the transport; nullptr: the system's
};

/// A rank that can be called, and does not know the others yet.
struct Doorway {
  ListenAddress own;
  Fd listener;
  std::optional<UnixListener> local;
  std::string text;  ///< what it says: no zero bytes
};
/// @p may_make_key: this may be rank 0.  Throws Error{unavailable}.
Doorway open_doorway(const TcpOptions& options, bool may_make_key);

/// The others.
struct Neighbours {
  int rank = 0;                            ///< this one
  std::vector<int> hosts;                  ///< [size] ranks with the same number share a host
  std::vector<std::string> doorways;       ///< [size] their Doorway::text
  std::vector<std::string> introductions;  ///< as Transport has it
  /// Everybody's text once more, for the trial: by the means that brought these.  Collective; called up to so often.
  std::function<std::vector<std::string>(const std::string&)> exchange;
};

struct OpenResult {
  std::unique_ptr<Transport> transport;
  std::string refused;  ///< whom the trial could not reach: there is no transport then
  std::string cards;    ///< where several lead to the next host: "eth0 (10 Gbit/s) and eth1"
};

/// Collective over all ranks.  Throws Error: unavailable, usage, timeout.  unavailable also where the trial's hosts do
/// reach one another, and something ends their connections before the key is proved.
OpenResult open(Doorway doorway, Neighbours neighbours, const TcpOptions& options);

/// Why there can be no TCP in this process: OpenSSL is not there.  Empty: there can.
std::string reason_against();

/// The key that the guard has left for its rank, HVD_KEY_FD; nullopt: the job has one host, or no guard has started
/// this process.
std::optional<JobKey> job_key(int fd);

}  // namespace hvd::transport::tcp
