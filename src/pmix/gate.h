/// @file gate.h — admits only the job's own processes to its PMIx server.
///
/// libpmix listens on a port of the loopback address.  It crashes on a stranger's bytes, waits for one that says
/// nothing, and believes the user id that a client claims (found with 4.2.2 and 5.0.11).  So each connection is checked
/// before libpmix gets it: a process below the host daemon must hold the other end open.
///
/// libpmix calls accept(), which it finds in this program before the C library's (wire/channel/bounded_accept.cc).
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace hvd::pmix {

/// The inode of the socket at the other end of a TCP connection over loopback, by the kernel's word; 0: there is none
/// any more, it is another user's, or it is no such connection.
/// Source: sock_diag(7); where the kernel lacks that, the table in /proc/net.
std::uint64_t peer_inode(int connection);
/// The same from sock_diag alone; nothing where the kernel lacks it, or the other end has gone.
std::optional<std::uint64_t> peer_inode_by_diag(int connection);
/// The same from the table, which takes milliseconds where there are many connections.
std::uint64_t peer_inode_by_table(int connection);

/// Whether a process below @p root has the socket @p inode open.
bool is_held_below(pid_t root, std::uint64_t inode);

/// From now on accept() closes connections of processes that are not below @p root, and fails with EAGAIN.  (Any other
/// error would make libpmix 5 give up listening.)  For the whole process, once.  All its listeners are affected.
void guard_accept(pid_t root);

/// Closes this process's listening sockets to new connections; open ones stay.  @return the number of sockets.
int shut_listeners();

}  // namespace hvd::pmix
