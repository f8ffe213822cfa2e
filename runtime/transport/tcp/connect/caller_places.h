/// @file caller_places.h — limits the unfinished calls from each source address.
///
/// A call is unfinished until the caller has proved that it knows the job's key.  The limit is the number of calls that
/// the ranks at the address can need, and at least 32.  So other processes cannot block the ranks' calls by calls of
/// their own.
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

  /// The limit on calls from @p source.  0: no rank calls from this address.
  std::size_t of(const Address& source) const;
  /// The limit on calls over unix sockets.
  std::size_t of_this_host() const { return this_host_; }

 private:
  std::size_t anybody_ = 0, this_host_ = 0;
  bool anywhere_ = false;                  ///< the source addresses of ranks are unknown
  std::map<Address, std::size_t> places_;  ///< limit by address; loopback_address: for all loopback addresses
};

/// Returns the address of the other end of a TCP connection.  Returns loopback_address for each loopback address and
/// for this end's own address.  nullopt: the connection has ended, or the address is IPv6 link-local.  No rank calls
/// from link-local addresses.
std::optional<Address> source_of(int connection);

}  // namespace hvd::transport::tcp
