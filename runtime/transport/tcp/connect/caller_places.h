/// @file caller_places.h — how many calls that have not proved the job's key may come from one address.
///
/// As many as the ranks there can need, so that nobody else on the network or on the job's hosts takes their places.
#pragma once
#include <sys/socket.h>

#include <cstddef>
#include <map>
#include <optional>

#include "transport/tcp/connect/link_plan.h"

namespace hvd::transport::tcp {

class CallerPlaces {
 public:
  explicit CallerPlaces(const LinkPlan& plan);

  /// Of calls from @p source; 0: no rank can call from there.
  std::size_t of(const Address& source) const;
  /// Of calls by unix sockets.
  std::size_t of_this_host() const { return this_host_; }

 private:
  std::size_t anybody_ = 0, this_host_ = 0;
  bool anywhere_ = false;                  ///< where ranks call from is not known
  std::map<Address, std::size_t> places_;  ///< loopback_address: of all loopback addresses
};

/// Of a TCP connection: where its other end is.  Loopback addresses, and the address of this end itself, are
/// loopback_address.  nullopt: it has none any more, or a link-local one, from which no rank calls.
std::optional<Address> source_of(int connection);

}  // namespace hvd::transport::tcp
