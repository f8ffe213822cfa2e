/// @file device_tensor.h — one operation on device memory, as a batch hands it to a GPU, and what GPUs can do with it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/types.h"

namespace hvd::gpu {

/// A stream of the framework, as the C interface has it; HVD_WHOLE_CONTEXT stands for all streams of the GPU.
using StreamHandle = void*;
/// An address in device memory.
using DeviceAddress = unsigned long long;

/// A stream, whatever becomes of its handle: a handle that was given back may mean another stream later.  0: not known.
using StreamId = std::uint64_t;

/// What a stream had been given at one moment.  Its content is the device's own business.  Any thread.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  /// Which stream it was.
  virtual StreamId stream() const { return 0; }
};

/// What all ranks have agreed to use; decided once for each process set.
struct Capabilities {
  bool kernels = false;  ///< all ranks can launch ours
  bool wide = false;     ///< sums of f16 and bf16 are made in f32: rounded once, twice the traffic
  bool float8 = false;   ///< those of 8-bit floats by the GPUs' library in 8 bits, see nccl/launch/scaling.h
};

struct DeviceTensor {
  Kind kind = Kind::allreduce;
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;
  double before = 1, after = 1;
  int root = 0;                              ///< broadcast
  std::size_t row_bytes = 0;                 ///< allreduce, broadcast: of the whole tensor
  std::int64_t rows = 1;                     ///< allgather, alltoall: of this rank; reducescatter: of the whole
  std::vector<std::int64_t> sent, received;  ///< allgather: received; alltoall: both; [size] rows for and of each rank
  const void* in = nullptr;
  void* out = nullptr;        ///< allreduce, broadcast; alltoall, reducescatter: for a result of out_bytes
  std::size_t out_bytes = 0;  ///< alltoall, reducescatter: of `out`; 0: `result` is made in any case
  bool absent = false;        ///< this rank has joined: zeros, and nobody wants the result
  DeviceAddress result =
      0;  ///< allgather, alltoall, reducescatter, unless it is in `out`: made by the device, then the caller's
  std::shared_ptr<StreamMark> ready;  ///< `in` and `out` may be used; nullptr: now.  Of a set's, in order

  std::size_t bytes() const { return static_cast<std::size_t>(rows) * row_bytes; }
  std::size_t elements() const { return bytes() / element_bytes(dtype); }
  /// Whether a result of @p size bytes goes to `out`.
  bool takes(std::size_t size) const { return out && out_bytes > 0 && size == out_bytes; }
  /// allgather, alltoall, reducescatter: where the result goes.
  DeviceAddress destination() const { return result ? result : reinterpret_cast<DeviceAddress>(out); }
};

/// Whether the GPUs of @p size ranks can do it among themselves; else it goes through host memory.  Pure.
bool possible(const DeviceTensor& tensor, int size, const Capabilities& capabilities);

}  // namespace hvd::gpu
