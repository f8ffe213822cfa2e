/// @file parse_hosts.h — reads hosts and slots: from -H, a hostfile, or the output of a discovery script.
#pragma once
#include <string>
#include <string_view>

#include "launcher/hosts/allocation.h"

namespace hvd::launcher {

/// "h1:2,h2,node[01-04]:4,[fe80::1]:2".  Throws Error{usage, "-H:column"}.
Allocation parse_hosts(std::string_view text);

/// A hostfile's text.  A host alone counts for one slot; a host on several lines counts for their sum.
/// @param name  for messages: name:line:column
Allocation parse_hostfile(std::string_view text, const std::string& name);

/// Reads a discovery script's output: `host` or `host:slots` on each line.
/// @param slots  of a host without its own number
Allocation parse_discovered(std::string_view text, int slots, const std::string& name);

}  // namespace hvd::launcher
