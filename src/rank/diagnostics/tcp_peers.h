/// @file tcp_peers.h — which other hosts do not answer the rank: for a network that is cut between two hosts, but to
/// hvdrun from neither.
///
/// Nothing is sent: the kernel knows how often it has repeated what was not acknowledged (/proc/net/tcp).
#pragma once
#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace hvd::rank {

/// Of this host's network cards.
std::vector<std::string> own_addresses();

/// Peers of the TCP connections of @p pid that have not acknowledged what was sent three times and more.
std::vector<std::string> unanswered(pid_t pid);

/// The same from the text of /proc/net/tcp or tcp6.  Pure.
/// @param inodes  of the sockets that count
std::set<std::string> unanswered_in(const std::string& table, const std::set<std::string>& inodes);

}  // namespace hvd::rank
