/// @file tcp_transport.h — the transport over sockets: TCP between hosts, unix sockets within a host.
///
/// The ranks first exchange one text each over another channel: a meeting through hvdrun, or MPI.  The transport then
/// needs no other channel, except for the trial (TcpOptions::needs_trial).
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
  std::optional<JobKey> key;       ///< the job's; nullopt: rank 0 makes a key and sends it in its text
  bool between_hosts = true;       ///< true: listens on TCP; false: listens on TCP only without a unix socket
  std::string interfaces;          ///< allowed network interfaces (listen_address.h); empty: all
  std::vector<CardAddress> cards;  ///< for tests: replace the addresses of the host; empty: no replacement
  bool filter = true;              ///< lets only the job's hosts connect
  bool threads_multiple = true;    ///< the result of Transport::threads_multiple()
  bool encrypts = false;           ///< encrypts traffic to other hosts; all ranks must have the same value
  bool local_sockets = true;       ///< true: unix sockets between ranks of one host; false: TCP
  int bulk_lanes = 1;
  double limit_seconds = 60;
  double again_seconds = 0.05, leave_seconds = 1, handshake_seconds = 5;  ///< see LinkPlan
  /// True: the first ranks of all hosts connect in a ring before open() returns.  If a host cannot be reached, open()
  /// returns no transport.
  bool needs_trial = false;
  double trial_seconds = 10;  ///< limit of one round of the trial
  /// Once raised, all messages fail with peer_lost, and the connections end.  null: the world cannot be revoked.
  std::shared_ptr<const Revocation> revocation;
  SocketCalls* calls = nullptr;  ///< must outlive the transport; nullptr: the system's calls
};

/// The listening sockets of a rank that does not know the other ranks yet.
struct Doorway {
  ListenAddress own;
  Fd listener;
  std::optional<UnixListener> local;
  std::string text;  ///< the text for the other ranks; contains no zero bytes
};
/// @p may_make_key: true if this process may be rank 0.  Throws Error{unavailable}.
Doorway open_doorway(const TcpOptions& options, bool may_make_key);

/// The ranks of the world, as the meeting has determined them.
struct Neighbours {
  int rank = 0;                            ///< this rank
  std::vector<int> hosts;                  ///< [size] ranks with the same number share a host
  std::vector<std::string> doorways;       ///< [size] Doorway::text of each rank
  std::vector<std::string> introductions;  ///< the result of Transport::introductions()
  /// Sends this rank's text, and returns the texts of all ranks: [size].  Collective.  Only the trial calls the
  /// function, at most 5 times.
  std::function<std::vector<std::string>(const std::string&)> exchange;
};

struct OpenResult {
  std::unique_ptr<Transport> transport;
  std::string refused;  ///< not empty: the rank that the trial could not reach; transport is then null
  /// The network interfaces to the first other host that several interfaces reach: "eth0 (10 Gbit/s) and eth1".  Empty:
  /// each other host is reached by one interface.
  std::string cards;
};

/// Opens the transport.  Collective over all ranks.  Throws Error{unavailable, usage, timeout, internal}.  The code is
/// also `unavailable` if the hosts of the trial reach each other but cannot finish a handshake.
OpenResult open(Doorway doorway, Neighbours neighbours, const TcpOptions& options);

/// The reason why this process cannot use TCP: OpenSSL is missing.  Empty: the process can.
std::string reason_against();

/// Reads the key that the guard has prepared for its rank.  @p fd: the value of HVD_KEY_FD; negative: none.  nullopt:
/// the job has one host, or no guard started this process.
std::optional<JobKey> job_key(int fd);

}  // namespace hvd::transport::tcp
