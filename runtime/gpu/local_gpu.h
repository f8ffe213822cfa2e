/// @file local_gpu.h — a GPU of this process, and the end of its work, as operations and their callers see them.
#pragma once
#include <memory>

#include "gpu/device_tensor.h"

namespace hvd::gpu {

/// The end of work that was queued on a device together.  The operations and their callers share the object.  Any
/// thread.
class DeviceCompletion {
 public:
  virtual ~DeviceCompletion() = default;
  /// Makes later work on @p stream wait for the queued work.  The host does not wait.  For the whole context the
  /// function does nothing: the caller polls arrived() instead.
  /// id: the id of @p stream from its StreamMark, or 0.  With an id, the stream is made to wait only once: later calls
  /// return without checks.
  /// Throws Error when the work has failed.  Throws Error{usage} while @p stream is being captured into a CUDA graph.
  /// A graph cannot wait for work outside of the graph.  The caller may call again after the capture.
  virtual void hold(StreamHandle stream, StreamId id) const = 0;
  /// True when the work is done, or has failed and never will be done.
  virtual bool arrived() const = 0;
};

/// One GPU that this process sees.  Lives as long as the process.  Any thread.
class LocalGpu {
 public:
  virtual int ordinal() const = 0;
  /// Marks the end of the work that @p stream has received until now.  This work computes the caller's tensor.  Returns
  /// nullptr while the stream is being captured into a CUDA graph.  Throws Error.
  virtual std::shared_ptr<StreamMark> mark_caller(StreamHandle stream) = 0;
  /// Returns true while work on @p stream becomes part of a CUDA graph.
  virtual bool capturing(StreamHandle stream) const {
    static_cast<void>(stream);
    return false;
  }
  /// Tells that @p stream uses the result from now on.  After free_result(), the memory is reused only after the work
  /// on that stream.
  virtual void lend_result(void* result, StreamHandle stream) = 0;
  /// Returns false if @p result is not memory that this GPU has given out.
  virtual bool free_result(void* result) = 0;

 protected:
  ~LocalGpu() = default;
};

}  // namespace hvd::gpu
