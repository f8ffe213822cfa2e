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

/// What an operation on device memory has besides.
struct DeviceState {
  gpu::LocalGpu* device = nullptr;
  gpu::StreamHandle stream = nullptr;          ///< the caller's
  gpu::StreamId stream_id = 0;                 ///< its, when the operation was submitted
  std::shared_ptr<gpu::StreamMark> ready;      ///< until our stream waits for it
  std::shared_ptr<gpu::DeviceCompletion> end;  ///< set when the operation has ended well
  bool result = false;                         ///< the result is device memory
  bool staged = false;                         ///< goes through host memory: in and out of the operation are there
  void* out = nullptr;                         ///< staged: the caller's
  void* pinned = nullptr;
};

/// That, or nothing.  Its memory stays with the operation: the next step submits as many.
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

/// Made by an OperationTable (operation_table.h): its address stays valid as long as the engine, whatever happens to
/// the handle.  The drive side writes what came of it, then `state`.
struct alignas(64) Operation {
  /// queued: ended on the host, and well; what becomes of it on the GPU is another matter.
  enum State : std::uint32_t { under_way = 0, ended = 1, failed = 2, queued = 3 };
  std::atomic<std::uint32_t> state{under_way};
  /// Part of the handle, and odd while there is one.  Written under the table's lock; so are holders, sleepers and
  /// listener.
  std::atomic<std::uint32_t> generation{0};
  std::uint32_t holders = 0;   ///< the handle, and each call that uses it
  std::uint32_t sleepers = 0;  ///< threads that wait for its end
  std::uint32_t index = 0;
  int status = 0;              ///< hvd_status; written before state becomes ended, like all below
  NameEntry* entry = nullptr;  ///< while under way; like of_set
  const void* in = nullptr;
  void* out = nullptr;
  ProcessSet* of_set = nullptr;  ///< valid while under way
  std::uint8_t parity = 0;       ///< which of its two slots an eager tensor is in
  bool by_bit = false;           ///< announced by its ready bit, not by a record
  bool more = false;             ///< some of what follows dim0 has been written
  std::uint32_t recorded = 0;    ///< its number in the recorder

  // A second line, not touched by most.
  /// Who wants to be told of the end.
  void (*listener)(void*) = nullptr;
  void* listener_context = nullptr;
  std::int64_t dim0 = 0;        ///< allgather, alltoall: this rank's own first dimension
  std::size_t out_bytes = 0;    ///< reducescatter, alltoall: of `out`
  void* result = nullptr;       ///< malloc'd; owned until taken.  Null where it is in `out`
  std::int32_t last_rank = -1;  ///< join: the world rank that came last
  OptionalDeviceState gpu;      ///< none: host memory
  std::string error;
  std::vector<std::int64_t> splits;    ///< alltoall: [size of the set] rows for each member
  std::vector<std::int64_t> received;  ///< allgather, alltoall: [size of the set] rows from each member
  std::vector<std::int64_t> result_shape;

  /// Memory for the result: the caller's, or made here.  Throws Error{unavailable}.
  void* memory_for(std::size_t bytes) {
    if (out && bytes == out_bytes) return out;
    result = memory::ResultMemory::process().take(bytes);
    if (!result) throw Error(Code::unavailable, "result", "no memory for " + std::to_string(bytes) + " bytes");
    return result;
  }
  bool done() const { return state.load(std::memory_order_acquire) != under_way; }

  /// @name Of an operation that has ended well.  Any thread.
  /// @{
  /// What is put on @p stream from now on comes after it: see gpu::DeviceCompletion::hold().  Nothing to do for host
  /// memory.
  void hold(gpu::StreamHandle stream) const {
    if (gpu && gpu->end) gpu->end->hold(stream, 0);
  }
  /// The same for the stream that it was submitted on.
  void hold_own() const {
    if (gpu && gpu->end) gpu->end->hold(gpu->stream, gpu->stream_id);
  }
  /// Its result is there, or never will be.
  bool arrived() const { return !gpu || !gpu->end || gpu->end->arrived(); }
  /// @}
};

}  // namespace hvd::core
