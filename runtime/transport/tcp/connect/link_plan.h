/// @file link_plan.h — the data that a rank needs for its connections.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "transport/revocation.h"
#include "transport/tcp/connect/handshake.h"
#include "transport/tcp/connect/listen_address.h"
#include "transport/tcp/connect/unix_listener.h"

namespace hvd::transport::tcp {

struct LinkPlan {
  JobKey key{};
  int rank = 0;
  std::vector<ListenAddress> ranks;  ///< [size]
  std::vector<int> hosts;            ///< [size] host number; ranks with the same number share a host
  /// [size] the addresses from which each rank can call.  Empty: ranks may call from all addresses.
  std::vector<std::vector<Address>> callers;
  std::vector<bool> on_machine;       ///< [size] true: the rank can use unix sockets with this rank; empty: none can
  Fd listener;                        ///< listening TCP socket; empty: this rank does not use TCP
  std::optional<UnixListener> local;  ///< for ranks on this host
  bool encrypts = false;              ///< encrypts traffic to other hosts
  int bulk_lanes = 1;                 ///< connections to a peer for large messages
  double limit_seconds = 60;          ///< limit for making a connection
  double handshake_seconds = 5;       ///< limit for a handshake; multiplied by load_factor()
  double again_seconds = 0.05;        ///< delay after a failed call; 40 times longer if the peer calls this rank
  double leave_seconds = 1;           ///< limit of Links::leave()
  std::shared_ptr<const Revocation> revocation;

  const ListenAddress& at(int peer) const { return ranks[static_cast<std::size_t>(peer)]; }
  /// Networks to the peer.  The first network is for the first lanes.  Empty: fewer than two networks reach the peer,
  /// or the peer is on this host.
  std::vector<SharedNetwork> ways(int peer) const {
    if (same_host(peer)) return {};
    auto networks = shared_networks(at(rank).cards, at(peer).cards);
    return networks.size() > 1 ? std::move(networks) : std::vector<SharedNetwork>{};
  }
  /// The number of lanes to the peer.
  int lanes(int peer) const { return bulk_lanes + std::max(static_cast<int>(ways(peer).size()), 1); }
  bool calls_by_unix_socket(int peer) const {
    return local && !on_machine.empty() && on_machine[static_cast<std::size_t>(peer)];
  }
  int size() const { return static_cast<int>(ranks.size()); }
  bool same_host(int peer) const {
    return hosts[static_cast<std::size_t>(peer)] == hosts[static_cast<std::size_t>(rank)];
  }
  /// "rank 3 (10.0.0.7)"
  std::string name(int peer) const {
    const std::vector<Address>& its = at(peer).addresses;
    return "rank " + std::to_string(peer) + (its.empty() ? "" : " (" + to_text(its[0]) + ")");
  }
};

inline std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

}  // namespace hvd::transport::tcp
