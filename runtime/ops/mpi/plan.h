/// @file plan.h — how tensors in device memory go through messages: what lies where in the fusion buffer, who sends
/// what to whom.
///
/// Two rounds of messages, each rank with all others; a round is posted at once.
///  - A sum: everybody sends everybody else the chunk that is theirs to add up, a kernel adds them in the order of the
///    ranks, and everybody sends the sum of its chunk to all.  So each rank sends and receives 2 (n-1)/n times the
///    bytes, as in a ring, but in 2 steps instead of 2 (n-1), and each element is computed once, at one place.
///    Where that is little, all send all of it to all, and each adds it up: one round.
///  - A reducescatter is the first half of that.
///  - A broadcast goes out in chunks and is put together by all, small ones directly.
///  - An allgather and an alltoall take one round.
///
/// All of it goes through one buffer, also where the tensor itself could be sent: an MPI keeps handles of the device
/// memory that it has seen (CUDA IPC, GPUDirect RDMA), which a framework's allocator knows nothing of; a message that
/// comes after a failure finds memory that is still ours; and a copy on the device takes little beside any network.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "cuda/combine.h"
#include "ops/nccl/work.h"

namespace hvd::mpi {

struct Letter {
  int peer;
  bool out;
  std::size_t at, bytes;  ///< in the fusion buffer; bytes > 0
};

/// A chunk that is made here.
struct Reduction {
  cuda::Element element;
  cuda::Combine how;
  std::size_t mine, others, stride;  ///< see cuda::Parts, in the fusion buffer
  std::uint64_t elements;
};

/// Between a tensor and the fusion buffer, for what is not in a nccl::Fused.  With the same change they share a launch.
struct Move {
  std::size_t tensor;
  std::size_t offset;  ///< into it (gather: of `in`; scatter: of `out` or `result`)
  std::size_t at, bytes;
  double factor = 1;
  bool wide = false;
};

struct Plan {
  std::size_t bytes = 0;  ///< of the fusion buffer
  std::array<std::vector<Letter>, 2> rounds;
  std::vector<Reduction> reductions;  ///< between the rounds
  std::vector<Move> gather, scatter;  ///< sorted by their change
};

/// Whether it can be done so; else the tensor goes through host memory.  means.kernels
bool possible(const nccl::Tensor& t, int size, const nccl::Means& means);

/// Pure.  A rank's letters to another and that one's from it are the same, in the same order, in each round.
/// @param fused        of the allreduces, by nccl::fuse(…, Alone::none)
/// @param fused_bytes  of the fusion buffer that those take
Plan plan(const std::vector<nccl::Tensor>& tensors, const std::vector<nccl::Fused>& fused, std::size_t fused_bytes,
          int rank, int size, const nccl::Means& means);

}  // namespace hvd::mpi
