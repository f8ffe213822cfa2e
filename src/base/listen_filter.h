/// @file listen_filter.h — closes listening sockets to other machines, or to all but some.
///
/// Open MPI's mpirun and its daemons listen on every address, whatever they are told, and act on what they receive; so
/// do its ranks, for one another's tensors; hvdrun's own channel listens while guards are still to come.  A packet
/// filter on the listening sockets drops what comes from elsewhere: the kernel then does not even answer.  Connections
/// that stand are not touched.
#pragma once
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace hvd {

/// An IPv6 address, or an IPv4 address as ::ffff:a.b.c.d; network order, and without a scope.
using Address = std::array<std::uint8_t, 16>;

/// Closes all listening TCP sockets of a process, this one or another of this user, that other machines could reach.
/// @return how many were closed now; those that were closed before are counted again.  0 also where the kernel does
///   not let us (before Linux 5.6, or in a container without pidfd_getfd): there is no harm in asking.
int close_listeners(pid_t pid) noexcept;

/// All addresses of this machine's (network namespace's) interfaces, loopback left out; nullopt where it does not tell.
std::optional<std::vector<Address>> own_addresses();

/// The inodes of this process's listening TCP sockets that other machines could reach, ascending.
std::vector<std::uint64_t> open_listeners();

/// Lets only `from` and this machine itself connect to this process's listening sockets, less those in `but`.  With
/// very many addresses the nearest are let in as a range with all between them: never too few, at times too many.
/// @return how many sockets were narrowed.
int restrict_listeners(const std::vector<std::uint64_t>& but, const std::vector<Address>& from);

}  // namespace hvd
