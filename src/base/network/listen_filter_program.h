/// @file listen_filter_program.h — the packet filter of listen_filter.h, as classic BPF; a header of its own for its
/// test.
#pragma once
#include <linux/filter.h>

#include <vector>

#include "base/network/listen_filter.h"

namespace hvd {

/// Lets in the packets that this machine sends to itself, and those of the addresses in @p from.  If @p from is not
/// empty, packets of others that open no connection pass too: accepted sockets inherit the filter, and all their
/// packets go through it.
std::vector<sock_filter> let_in(const std::vector<Address>& from);

}  // namespace hvd
