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

/// Refers to the caller's name, shape and splits, which must stay unchanged.  Two cache lines: a call may have 100 000.
struct alignas(64) CheckedRequest {
  std::string_view name;  ///< empty: the runtime makes a name
  const void* in = nullptr;
  void* out = nullptr;
  const std::int64_t* shape = nullptr;   ///< [signature.ndim] with this rank's own first dimension
  std::int64_t dim0 = 0;                 ///< allgather, alltoall: this rank's own first dimension
  std::size_t out_bytes = 0;             ///< reducescatter, alltoall, allgather: of `out`
  const std::int64_t* splits = nullptr;  ///< alltoall: [size of the set] rows for each member; nullptr: equal parts
  SignatureHead signature;
  gpu::LocalGpu* gpu = nullptr;        ///< the GPU whose memory the tensor is in; nullptr: host memory
  gpu::StreamHandle stream = nullptr;  ///< the caller's; only with a GPU

  Signature whole_signature() const { return {signature, shape}; }
  /// alltoall: the rows for each of the set's @p members.
  std::vector<std::int64_t> rows_for(int members) const {
    const auto count = static_cast<std::size_t>(members);
    if (splits) return {splits, splits + count};
    return std::vector<std::int64_t>(count, dim0 / members);
  }
  /// True if the runtime allocates the result, whose size is known only at the end.
  bool has_result() const { return is_among(signature.operation(), taken_kinds); }
};
static_assert(sizeof(CheckedRequest) == 128);

/// @p world: of the process set.  Throws Error{usage} that names the operation and the field.  The result refers to
/// the memory to which @p request refers.
CheckedRequest check_request(const hvd_request* request, const World& world, gpu::Platform& gpus);

/// Makes @p requests, at least one, a group: they become ready together.  Throws Error{usage} where some are in host
/// memory and some on a GPU.
void make_group(std::vector<CheckedRequest>& requests);

}  // namespace hvd::core
