/// @file sums.h — the results of the fake NCCL's reductions.
#pragma once
#include <cstddef>
#include <vector>

#include "gpu/nccl/communicator/library.h"

namespace fake {

/// The size of one element, by NCCL's number of a type.
std::size_t bytes_of(int type);
/// Reduces element by element, in the order of @p from. Each element is multiplied by @p factor first. to: [count]
void reduce(const std::vector<const void*>& from, void* to, std::size_t count, int type, hvd::nccl::RedOp op,
            double factor);

}  // namespace fake
