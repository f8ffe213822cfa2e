/// @file sums.h — what the fake NCCL's reductions compute.
#pragma once
#include <cstddef>
#include <vector>

#include "gpu/nccl/communicator/library.h"

namespace fake {

/// Of one element, by NCCL's number of a type.
std::size_t bytes_of(int type);
/// Element by element, in the order of @p from; each is multiplied by @p factor first.  to: [count]
void reduce(const std::vector<const void*>& from, void* to, std::size_t count, int type, hvd::nccl::RedOp op,
            double factor);

}  // namespace fake
