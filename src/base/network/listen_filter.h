/// @file listen_filter.h — closes listening sockets to all other machines, or to all except given addresses.
///
/// Open MPI's mpirun and daemons listen on every address, with any options, and obey every message.  Open MPI's ranks
/// listen for tensors of other ranks.  hvdrun's own channel listens until all guards have come.  A packet filter on the
/// listening sockets drops the packets of other machines; the kernel does not answer them.  Existing connections are
/// not affected.
#pragma once
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace hvd {

/// An IPv6 address, or an IPv4 address as ::ffff:a.b.c.d; in network byte order, without a scope.
using Address = std::array<std::uint8_t, 16>;

/// Closes the listening TCP sockets of a process that other machines could reach.
/// @param pid  this process, or another process of this user
/// @return the number of closed sockets, including sockets that were closed earlier.  Also 0 if the kernel refuses
/// access to another process's sockets: before Linux 5.6, or in a container without pidfd_getfd
int close_listeners(pid_t pid) noexcept;

/// The addresses of all interfaces of this network namespace, without loopback; nullopt if getifaddrs(3) fails.
std::optional<std::vector<Address>> own_addresses();

/// The inodes, ascending, of those listening TCP sockets of this process that other machines could reach.
std::vector<std::uint64_t> open_listeners();

/// Lets only @p from and this machine connect to one listening socket.  False if the kernel refuses the filter.
bool restrict_listener(int fd, const std::vector<Address>& from);

/// Lets only @p from and this machine connect to this process's listening sockets.  An empty @p from: only this
/// machine. The filter has limited room.  With too many IPv4 addresses, near addresses are joined to a range, which
/// also admits the addresses between them.  With too many IPv6 addresses, whole networks of 64 bits are admitted, or
/// all of IPv6. No address of @p from is shut out.
/// @param but  inodes of sockets that are not changed, ascending
/// @return the number of sockets with the filter
int restrict_listeners(const std::vector<std::uint64_t>& but, const std::vector<Address>& from);

}  // namespace hvd
