/// @file bounded_accept.h — accept4() that leaves some descriptors to the rest of the program: bounded_accept.cc.
#pragma once
#include <sys/socket.h>

namespace hvd::wire {

/// As accept4(2); ECONNABORTED where descriptors are scarce, and the connection is closed.
int bounded_accept(int door, sockaddr* address, socklen_t* size, int flags);

/// As accept4(2), with the descriptors that bounded_accept() holds back.
int reserved_accept(int door, int flags);

/// From now on, where descriptors are scarce, bounded_accept() ends some of the connections that it has given and of
/// which @p has_proved says no.  Of this process; the first call counts.
void end_unproved(bool (*has_proved)(int connection));

/// From now on accept() and accept4() close a connection of which @p check says no, with EAGAIN.  Of this process, for
/// listeners of libraries; called by whichever thread accepts.
void set_accept_check(bool (*check)(int connection));

}  // namespace hvd::wire
