/// @file listen_filter_program.h — the packet filter behind listen_filter.h, as classic BPF: a header of its own for
/// its test.
#pragma once
#include <linux/filter.h>

#include <vector>

#include "base/listen_filter.h"

namespace hvd {

/// Lets in what this machine sends to itself and what comes from one of `from`.  Where there are any, packets of others
/// pass too if they open no connection: accepted sockets inherit the filter, and each of their packets goes through it.
std::vector<sock_filter> let_in(const std::vector<Address>& from);

}  // namespace hvd
