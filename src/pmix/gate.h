/// @file gate.h — admits only the job's own processes to its PMIx server.
///
/// libpmix listens on a port of the loopback address, where any user's process can connect.  libpmix 4.2.2 and 5.0.11
/// crash on wrong bytes, and block on a silent client.  Both versions also trust the user id that a client claims.
/// Therefore each connection is checked before libpmix gets it.  A process below the host daemon must have the other
/// end open.
///
/// libpmix calls the accept() of this program (wire/channel/bounded_accept.cc), which precedes the C library's.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace hvd::pmix {

/// The inode of the socket at the other end of a TCP connection over loopback.  0: that socket is gone or another
/// user's, or @p connection is no TCP connection.
/// Asks the kernel by sock_diag(7); without sock_diag, reads the table in /proc/net.
std::uint64_t peer_inode(int connection);
/// Like peer_inode(), but asks only sock_diag.  Nothing if sock_diag is missing or does not know the socket.
std::optional<std::uint64_t> peer_inode_by_diag(int connection);
/// Like peer_inode(), but reads only the table.  With many connections the table takes milliseconds.
std::uint64_t peer_inode_by_table(int connection);

/// Returns true if a descendant of @p root has the socket @p inode open.
bool is_held_below(pid_t root, std::uint64_t inode);

/// From now on, accept() closes connections of processes that are not below @p root, and fails with EAGAIN.  After any
/// other error libpmix 5 stops listening.  Affects all listeners of this process.  Call once.
void guard_accept(pid_t root);

/// Closes this process's listening sockets to new connections.  Open connections stay.  @return the number of sockets
int shut_listeners();

}  // namespace hvd::pmix
