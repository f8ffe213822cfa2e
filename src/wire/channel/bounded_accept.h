/// @file bounded_accept.h — accept4() that leaves some descriptors to the rest of the program: bounded_accept.cc.
#pragma once
#include <sys/socket.h>

namespace hvd::wire {

/// Like accept4(2).  If few descriptors are left, closes the new connection and fails with ECONNABORTED.
int bounded_accept(int listener, sockaddr* address, socklen_t* size, int flags);

/// Like accept4(2), but may use the descriptors that bounded_accept() holds back.
int reserved_accept(int listener, int flags);

/// From now on bounded_accept() may end connections that it has returned before, when descriptors are scarce.
/// bounded_accept() ends only connections for which @p has_proved returns false.  For the whole process; the first call
/// counts.
void end_unproved(bool (*has_proved)(int connection));

/// From now on accept() and accept4() close a connection for which @p check returns false, and fail with EAGAIN.  For
/// the whole process, with the listeners of its libraries.  @p check runs in the thread that accepts.
void set_accept_check(bool (*check)(int connection));

}  // namespace hvd::wire
