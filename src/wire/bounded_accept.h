/// @file bounded_accept.h — accept4() that leaves some descriptors to the rest of the program: bounded_accept.cc.
#pragma once
#include <sys/socket.h>

namespace hvd::wire {

/// As accept4(2); ECONNABORTED where descriptors are scarce, and the connection is closed.
int bounded_accept(int door, sockaddr* address, socklen_t* size, int flags);

}  // namespace hvd::wire
