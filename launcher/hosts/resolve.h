/// @file resolve.h — looks up hosts' names, and finds which of them are this machine.
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
  std::string unknown;   ///< why the name is not known, with the place that gave it; empty: the name is known
};

/// Looks all names up at once, in a few threads.  These names of this machine need no look-up: localhost, 127.…, ::1,
/// the host's name.  With a launch agent of the user, an unknown name is no error.  The agent may not use the name
/// service.
std::vector<ResolvedHost> resolve(const Allocation& allocation);

/// Throws Error{unavailable} that names every unknown host.
void require_known(const std::vector<ResolvedHost>& hosts);

}  // namespace hvd::launcher
