/// @file local_gpu.h — a GPU of this process, and the end of work on it, as operations and their callers see them.
#pragma once
#include <memory>

#include "gpu/device_tensor.h"

namespace hvd::gpu {

/// The end of what was queued on a device together.  Shared by the operations and their callers.  Any thread.
class DeviceCompletion {
 public:
  virtual ~DeviceCompletion() = default;
  /// What is put on @p stream from now on comes after the work; the host waits for nothing.  Throws Error when the work
  /// has failed since; and Error{usage} while @p stream is being captured into a CUDA graph, which cannot wait for what
  /// is not part of it: the same call may come again later.  Nothing to do for the whole context: its caller asks
  /// arrived().  @p id: which stream that is, if its mark says so (StreamMark): then it is made to wait once.
  virtual void hold(StreamHandle stream, StreamId id) const = 0;
  /// The work is done, or never will be.
  virtual bool arrived() const = 0;
};

/// One GPU that this process sees.  Lives as long as the process.  Any thread.
class LocalGpu {
 public:
  virtual int ordinal() const = 0;
  /// What @p stream has been given so far: a tensor is made of that.  nullptr while the stream is being captured into a
  /// CUDA graph.  Throws Error.
  virtual std::shared_ptr<StreamMark> mark_caller(StreamHandle stream) = 0;
  /// A result is used on @p stream from now on: once free, it is used again only behind the work on that stream.
  virtual void lend_result(void* result, StreamHandle stream) = 0;
  /// False: it is no memory of this GPU's that was given out.
  virtual bool free_result(void* result) = 0;

 protected:
  ~LocalGpu() = default;
};

}  // namespace hvd::gpu
