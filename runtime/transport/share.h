/// @file share.h — memory that the ranks of one node share.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace hvd::transport {

/// Zeroed memory of @p bytes bytes, page-aligned, seen by all of @p members (world ranks of one node, in the same
/// order everywhere).  Collective over them; the lowest creates it.  Nothing is left in /dev/shm once it returns.
/// Throws Error{unavailable} when there is not enough shared memory, Error{timeout} when a member does not come.
std::shared_ptr<void> share(Transport& t, const std::vector<int>& members, std::size_t bytes, double limit_seconds);

}  // namespace hvd::transport
