/// @file allocation.h — which hosts take part and how many ranks each may take.
///
/// Readers of all forms end in one Allocation.  parse_* are pure; only resolve.h touches the network.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

struct HostSlots {
  std::string host;  ///< as the user wrote it, without brackets
  int slots = 1;
  std::string where;  ///< "-H:4", "hosts:3:1": for messages about this host
};

struct Allocation {
  std::vector<HostSlots> hosts;  ///< in the given order, each name once
  std::string source;            ///< "-H", "hostfile hosts", "localhost (default)"

  long long total_slots() const;
};

/// "h1:2,h2,node[01-04]:4,[fe80::1]:2".  Throws Error{usage, "-H:column"}.
Allocation parse_hosts(std::string_view text);

/// A hostfile's text.  A host alone counts for one slot; a host on several lines counts for their sum.
/// @param name  for messages: name:line:column
Allocation parse_hostfile(std::string_view text, const std::string& name);

/// Allocation and number of ranks that the options ask for; -np may be left out when hosts are given.
/// Throws Error{usage} with both numbers when there are too few slots, and for np < 1.
struct Wanted {
  Allocation allocation;
  int np = 0;
};
Wanted decide_allocation(std::optional<int> np, const std::string& hosts, const std::string& hostfile);

}  // namespace hvd::launcher
