/// @file tcp_peers.h — finds hosts that do not answer a rank.  The network may be cut between two hosts while hvdrun
/// still reaches both.
///
/// Nothing is sent: /proc/net/tcp tells how often the kernel has repeated a segment that was not acknowledged.
#pragma once
#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace hvd::rank {

/// The addresses of this host's network interfaces.
std::vector<std::string> own_addresses();

/// The addresses that left a segment of a TCP connection of @p pid unanswered at least three times.
std::vector<std::string> unanswered(pid_t pid);

/// Like unanswered(), for the text of /proc/net/tcp or tcp6.  Pure.
/// @param inodes  of the sockets to look at
std::set<std::string> unanswered_in(const std::string& table, const std::set<std::string>& inodes);

}  // namespace hvd::rank
