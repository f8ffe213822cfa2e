/// @file resolve.h — are the hosts known, and which of them is this one?
#pragma once
#include <string>
#include <vector>

#include "launcher/hosts/allocation.h"

namespace hvd::launcher {

struct ResolvedHost {
  std::string host;
  bool local = false;    ///< this machine
  std::string address;   ///< first address, numeric; empty when local by name
  std::string reach_us;  ///< remote: our own numeric address on the way to it; empty: no route
  std::string unknown;   ///< why the name is not known, with the place that named it; empty where it is
};

/// Looks all names up at once (a few threads).
/// Names of this machine by which no look-up is needed (localhost, 127.…, ::1, the host's name) make no look-up.
/// With a launch agent of its own an unknown name is no error: that agent need not go by the name service.
std::vector<ResolvedHost> resolve(const Allocation& allocation);

/// Throws Error{unavailable} that names every unknown host.
void require_known(const std::vector<ResolvedHost>& hosts);

}  // namespace hvd::launcher
