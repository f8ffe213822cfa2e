/// @file link_plan.h — what a rank knows before it makes its first connection.
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
  std::vector<int> hosts;            ///< [size] ranks with the same number share a machine
  /// [size] the addresses from which each rank can call; empty: ranks may call from anywhere.
  std::vector<std::vector<Address>> callers;
  std::vector<bool> on_machine;       ///< [size] ranks that can reach this one's unix socket; empty: none
  Fd listener;                        ///< for other hosts; empty: there are none
  std::optional<UnixListener> local;  ///< for processes of this host
  bool encrypts = false;              ///< what travels to other hosts
  int bulk_lanes = 1;                 ///< connections to a peer for large messages
  double limit_seconds = 60;          ///< for a connection to be made
  double handshake_seconds = 5;       ///< for both ends to prove the key, times load_factor()
  double again_seconds = 0.05;        ///< after a call that failed; the other end's own call has 40 times as long
  double leave_seconds = 1;           ///< what has been sent leaves within it
  std::shared_ptr<const Revocation> revocation;

  const ListenAddress& at(int peer) const { return ranks[static_cast<std::size_t>(peer)]; }
  /// Networks to the peer, the one of the first lanes first.  Empty: there is one network only.
  std::vector<SharedNetwork> ways(int peer) const {
    if (same_host(peer)) return {};
    auto networks = shared_networks(at(rank).cards, at(peer).cards);
    return networks.size() > 1 ? std::move(networks) : std::vector<SharedNetwork>{};
  }
  /// Links to that peer.
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
