/// @file operation.h — one submitted tensor.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "common/signature.h"
#include "gpu/local_gpu.h"
#include "memory/result_memory.h"

namespace hvd::core {

struct NameEntry;
class ProcessSet;

/// The additional state of an operation on device memory.
struct DeviceState {
  gpu::LocalGpu* device = nullptr;
  gpu::StreamHandle stream = nullptr;          ///< the caller's
  gpu::StreamId stream_id = 0;                 ///< the stream's, when the operation was submitted
  std::shared_ptr<gpu::StreamMark> ready;      ///< until our stream waits for it
  std::shared_ptr<gpu::DeviceCompletion> end;  ///< set when the operation has ended well
  bool result = false;                         ///< the result is device memory
  bool staged = false;                         ///< `in` and `out` of the operation are copies in host memory
  void* out = nullptr;                         ///< staged: the caller's `out`
  void* pinned = nullptr;
};

/// A DeviceState, or none.  The memory stays with the operation, since the next step needs it again.
class OptionalDeviceState {
 public:
  void make(gpu::LocalGpu& device, gpu::StreamHandle stream, std::shared_ptr<gpu::StreamMark> ready) {
    if (!part_) part_ = std::make_unique<DeviceState>();
    part_->device = &device;
    part_->stream = stream;
    part_->stream_id = ready ? ready->stream() : 0;
    part_->ready = std::move(ready);
  }
  void reset() {
    if (*this) *part_ = {};
  }
  explicit operator bool() const { return part_ && part_->device; }
  DeviceState* operator->() const { return part_.get(); }

 private:
  std::unique_ptr<DeviceState> part_;
};

/// An OperationTable (operation_table.h) makes operations.  The address of an operation is valid as long as the engine
/// exists, also after the handle is released.  The drive side writes the results, then `state`.
struct alignas(64) Operation {
  /// queued: ended well on the host; the GPU may still fail.
  enum State : std::uint32_t { under_way = 0, ended = 1, failed = 2, queued = 3 };
  std::atomic<std::uint32_t> state{under_way};
  /// Part of the handle; odd while the handle is valid.  The table's lock protects writes of this member and of
  /// holders, sleepers and listener.
  std::atomic<std::uint32_t> generation{0};
  std::uint32_t holders = 0;   ///< the number of holds: one of the handle, one of each call that uses the handle
  std::uint32_t sleepers = 0;  ///< threads that wait for its end
  std::uint32_t index = 0;
  int status = 0;              ///< hvd_status; written before `state`, like all members below
  NameEntry* entry = nullptr;  ///< valid while under way
  const void* in = nullptr;
  void* out = nullptr;
  ProcessSet* of_set = nullptr;  ///< valid while under way
  std::uint8_t parity = 0;       ///< which of its two slots an eager tensor is in
  bool by_bit = false;           ///< announced by its ready bit, not by a record
  bool more = false;             ///< some member of the second line, other than the listener, has been written
  bool listened = false;         ///< `listener` is set; like it, written under the table's lock
  std::uint32_t recorded = 0;    ///< its number in the recorder

  // The second cache line, which an operation touches only if `more` or `listened`.
  void (*listener)(void*) = nullptr;  ///< called when the operation has ended
  void* listener_context = nullptr;
  std::int64_t dim0 = 0;        ///< allgather, alltoall: this rank's own first dimension
  std::size_t out_bytes = 0;    ///< reducescatter, alltoall: of `out`
  void* result = nullptr;       ///< malloc'd; the operation owns it until taken.  Null: the result is in `out`
  std::int32_t last_rank = -1;  ///< join: the world rank that joined last
  OptionalDeviceState gpu;      ///< none: host memory
  std::string error;
  std::vector<std::int64_t> splits;    ///< alltoall: [size of the set] rows for each member
  std::vector<std::int64_t> received;  ///< allgather, alltoall: [size of the set] rows from each member
  std::vector<std::int64_t> result_shape;

  /// Returns `out` if it has exactly @p bytes, else new memory for the result.  Throws Error{unavailable}.
  void* memory_for(std::size_t bytes) {
    if (out && bytes == out_bytes) return out;
    result = memory::ResultMemory::process().take(bytes);
    if (!result) throw Error(Code::unavailable, "result", "no memory for " + std::to_string(bytes) + " bytes");
    return result;
  }
  bool done() const { return state.load(std::memory_order_acquire) != under_way; }

  /// @name For operations that have ended well.  Any thread.
  /// @{
  /// Makes later work on @p stream wait for the result: see gpu::DeviceCompletion::hold().  Host memory needs no wait.
  void hold(gpu::StreamHandle stream) const {
    if (gpu && gpu->end) gpu->end->hold(stream, 0);
  }
  /// hold() for the stream on which the operation was submitted.
  void hold_own() const {
    if (gpu && gpu->end) gpu->end->hold(gpu->stream, gpu->stream_id);
  }
  /// True when the result is there, or the GPU has failed.
  bool arrived() const { return !gpu || !gpu->end || gpu->end->arrived(); }
  /// @}
};

}  // namespace hvd::core
