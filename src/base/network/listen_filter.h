/// @file listen_filter.h — closes listening sockets to other machines, or to all but some of them.
///
/// Open MPI's mpirun and daemons listen on every address, whatever their options, and obey every message.  Its
/// ranks listen too, for one another's tensors, and hvdrun's own channel does until all guards have come.  A packet
/// filter on the listening sockets drops the packets of other machines: the kernel does not even answer them.
/// Connections that exist already are not touched.
#pragma once
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace hvd {

/// An IPv6 address, or an IPv4 address as ::ffff:a.b.c.d; network order, and without a scope.
using Address = std::array<std::uint8_t, 16>;

/// Closes the listening TCP sockets of a process that other machines could reach.  The process may be this one, or
/// another one of this user.
/// @return the number of closed sockets, sockets closed earlier included.  Also 0 where the kernel does not allow it
/// (before
///   Linux 5.6, or in a container without pidfd_getfd); the call does no harm there.
int close_listeners(pid_t pid) noexcept;

/// The addresses of all interfaces of this network namespace, without loopback; nullopt where they cannot be read.
std::optional<std::vector<Address>> own_addresses();

/// The inodes of this process's listening TCP sockets that other machines could reach, ascending.
std::vector<std::uint64_t> open_listeners();

/// Lets only @p from and this machine itself connect to one listening socket.  False where that cannot be done.
bool restrict_listener(int fd, const std::vector<Address>& from);

/// Lets only @p from and this machine itself connect to this process's listening sockets, except the sockets in @p but.
/// Where there are too many addresses for a filter, neighbours are joined to a range with all addresses between them:
/// no address of @p from is ever shut out, but some others may be let in.
/// @return how many sockets have the filter.
int restrict_listeners(const std::vector<std::uint64_t>& but, const std::vector<Address>& from);

}  // namespace hvd
