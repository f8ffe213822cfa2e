/// @file listen_filter_program.h — makes the packet filter of listen_filter.h, in classic BPF.  A separate header, so
/// that a test can include it.
#pragma once
#include <linux/filter.h>

#include <vector>

#include "base/network/listen_filter.h"

namespace hvd {

/// The program admits packets that this machine sends to itself, and packets from the addresses in @p from.  If @p from
/// has addresses, the program also admits all packets that open no connection.  Accepted sockets inherit the filter, so
/// all their packets pass through it.
std::vector<sock_filter> let_in(const std::vector<Address>& from);

}  // namespace hvd
