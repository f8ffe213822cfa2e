/// @file device_tensor.h — one operation on device memory, in the form that a batch passes to a GPU.  Also tells which
/// operations GPUs can do.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/tensor_slice.h"
#include "common/types.h"

namespace hvd::gpu {

/// A stream of the framework, as in the C interface.  HVD_WHOLE_CONTEXT stands for all streams of the GPU.
using StreamHandle = void*;
/// An address in device memory.
using DeviceAddress = unsigned long long;

/// Identifies a stream uniquely.  A stream handle does not, because CUDA may reuse the handle of a destroyed stream.
/// 0: not known.
using StreamId = std::uint64_t;

/// Marks the work that a stream had received at one moment.  The content is private to the device.  Any thread.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  /// The stream that was marked.
  virtual StreamId stream() const { return 0; }
};

/// The abilities that all ranks have agreed to use.  Decided once for each process set.
struct Capabilities {
  bool kernels = false;  ///< all ranks can launch the runtime's kernels
  bool wide = false;     ///< f16 and bf16 are summed in f32: one rounding, twice the traffic
  bool float8 = false;   ///< the GPUs' library sums 8-bit floats in 8 bits, see nccl/launch/scaling.h
};

struct DeviceTensor {
  Kind kind = Kind::allreduce;
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;
  double before = 1, after = 1;
  int root = 0;               ///< rank that sends, for a broadcast
  std::size_t row_bytes = 0;  ///< bytes of a row; allreduce, broadcast: bytes of the whole tensor
  std::int64_t rows = 1;      ///< allgather, alltoall: rows of this rank; reducescatter: rows of the whole tensor
  /// [size] Rows for and from each rank.  allgather uses `received` only, alltoall uses both.
  std::vector<std::int64_t> sent, received;
  const void* in = nullptr;
  void* out = nullptr;  ///< allreduce, broadcast: the result; alltoall, reducescatter: the caller's memory, or nullptr
  /// alltoall, reducescatter: bytes of `out`.  A result of another size gets memory from the device.  0: every result
  /// gets such memory.
  std::size_t out_bytes = 0;
  bool absent = false;  ///< this rank has joined: its elements are zeros, and its result is unused
  /// allgather, alltoall, reducescatter: memory that the device allocates and the caller owns.  0: the result is in
  /// `out`.
  DeviceAddress result = 0;
  /// `in` and `out` may be used after this mark; nullptr: now.
  std::shared_ptr<StreamMark> ready;
  std::string_view name;  ///< of the operation; valid while the operation is under way
  TensorSlice slice;      ///< allreduce, broadcast: the part of the result to hash, see SliceHashes; empty: none

  std::size_t bytes() const { return static_cast<std::size_t>(rows) * row_bytes; }
  std::size_t elements() const { return bytes() / element_bytes(dtype); }
  /// Returns whether a result of @p size bytes goes to `out`.
  bool takes(std::size_t size) const { return out && out_bytes > 0 && size == out_bytes; }
  /// allgather, alltoall, reducescatter: the memory of the result.
  DeviceAddress destination() const { return result ? result : reinterpret_cast<DeviceAddress>(out); }
};

/// Returns whether the GPUs of @p size ranks can do the operation themselves.  Otherwise the tensor goes through host
/// memory.  Pure function.
bool possible(const DeviceTensor& tensor, int size, const Capabilities& capabilities);

}  // namespace hvd::gpu
