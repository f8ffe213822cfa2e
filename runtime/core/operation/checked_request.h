/// @file checked_request.h — a request of the C interface, checked.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/signature.h"
#include "common/world.h"
#include "gpu/device.h"
#include "hvd/hvd.h"

namespace hvd::core {

struct CheckedRequest {
  std::string_view name;  ///< empty: the runtime makes a name
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t out_bytes = 0;           ///< reducescatter, alltoall, allgather: of `out`
  std::int64_t dim0 = 0;               ///< allgather, alltoall: this rank's own first dimension
  std::vector<std::int64_t> splits;    ///< alltoall: [size of the set]
  gpu::LocalGpu* gpu = nullptr;        ///< the GPU whose memory the tensor is in; nullptr: host memory
  gpu::StreamHandle stream = nullptr;  ///< the caller's; only with a GPU
  Signature signature;                 ///< last: its unused dimensions are never touched

  /// True if the runtime allocates the result, whose size is known only at the end.
  bool has_result() const { return is_among(signature.operation(), taken_kinds); }
};

/// @p world: of the process set.  Throws Error{usage} that names the operation and the field.  The name in the result
/// points into @p request.
CheckedRequest check_request(const hvd_request* request, const World& world, gpu::Platform& gpus);

/// Makes @p requests, at least one, a group: they become ready together.  Throws Error{usage} where some are in host
/// memory and some on a GPU.
void make_group(std::vector<CheckedRequest>& requests);

}  // namespace hvd::core
