/// @file gpu_batch.h — what a batch on a GPU's stream is made of, whoever moves it: waits, packing, unpacking, marks.
///
/// Small tensors of one type and reduction lie together in a fusion buffer, packed by one launch of our kernels; the
/// host waits for nothing meanwhile:
///
///   stream: wait for each tensor's mark → gather → NCCL → scatter → mark
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/cuda/gpu.h"
#include "gpu/nccl/launch/scaling.h"

namespace hvd::nccl {

/// Tensors that are reduced together.
struct FusedGroup {
  std::vector<std::size_t> tensors;  ///< of the launch
  std::vector<std::size_t> at;       ///< where each begins in the fusion buffer, in bytes
  std::size_t begin = 0, bytes = 0;  ///< of all, in the fusion buffer
  Scaling scaling;
  bool wide = false;
};

/// Which tensors go together.  Pure, and the same on all ranks.
/// @param buffer_bytes  out: the size that the fusion buffer must have
/// @param parts         each group's bytes are a multiple of @p parts times the bytes of each of its elements
std::vector<FusedGroup> fuse(const std::vector<DeviceTensor>& tensors, int size, const Capabilities& capabilities,
                             std::size_t* buffer_bytes, int parts = 1);

/// The fusion buffer of a process set; grows as needed.
///
/// Where the device has no memory for it, it is page-locked memory of the host, which every device of a 64-bit process
/// reads and writes at the same address (CUDA driver API, "Unified Addressing"), and which NCCL takes like its own.  So
/// a rank whose GPU is full is slower, does as the others do, and need not tell them.
class FusionBuffer {
 public:
  /// of: the set.
  explicit FusionBuffer(cuda::Gpu& gpu, const void* of = nullptr) : gpu_(gpu), of_(of) {}
  ~FusionBuffer() { release(); }
  FusionBuffer(const FusionBuffer&) = delete;
  FusionBuffer& operator=(const FusionBuffer&) = delete;
  /// With the context current, for use on @p stream alone.  What was there before is gone.  kernels: ours pack it, not
  /// the driver's copies from device to device.
  cuda::Pointer of(std::size_t bytes, cuda::Stream stream, bool kernels);
  bool on_host() const { return on_host_; }
  std::shared_ptr<cuda::Mark> last;  ///< behind its last use

 private:
  cuda::Gpu& gpu_;
  const void* const of_;
  void release();
  void ask(std::size_t bytes, cuda::Stream stream, bool kernels);

  cuda::Pointer address_ = 0;
  std::size_t bytes_ = 0;
  bool on_host_ = false;
};

/// The callers' marks for which one stream of the runtime waits already.  Later work on that stream needs no second
/// wait.
class StreamWaits {
 public:
  /// Whether it waits for @p mark, or for a later one of the same stream.  From now on it does.
  bool add(const cuda::Mark& mark);

 private:
  struct Last {
    gpu::StreamId stream;
    std::uint64_t number;  ///< of the mark
  };
  std::vector<Last> all_;
};

/// Where a batch runs.
struct StreamContext {
  cuda::Gpu& gpu;
  cuda::Stream stream;
  FusionBuffer& buffer;  ///< of the stream
  StreamWaits& waits;    ///< of the stream
  const void* set;       ///< whose work it is: see cuda::DeviceWork
  Capabilities capabilities;
  bool timed;  ///< marks between the parts, for the timeline
};

/// The set's LaunchThread queues the whole batch.  The mark recorded after the batch tells when the GPU has finished
/// it.
class GpuBatch {
 public:
  virtual ~GpuBatch();
  GpuBatch(const GpuBatch&) = delete;
  GpuBatch& operator=(const GpuBatch&) = delete;

  /// Memory on the device of a batch that will not be queued.  The caller gives it back, once nothing of what was
  /// queued can use it anymore.
  virtual std::vector<cuda::Pointer> take_rest();
  /// Something has been queued, or begun to be, but not all.
  virtual bool midway() const = 0;

  /// All is queued.  Any thread.
  bool done() const { return queued_.load(std::memory_order_seq_cst); }
  /// Once done(): the tensors with their results, and the mark that follows all of the batch's work.
  std::vector<DeviceTensor>& tensors() { return tensors_; }
  const std::shared_ptr<cuda::Mark>& mark() const { return marks_.back(); }
  /// timed: five, before the wait for the tensors, before the packing, before NCCL, before the unpacking, at the
  /// end.
  const std::vector<std::shared_ptr<cuda::Mark>>& marks() const { return marks_; }
  /// When the first was recorded, on the host's monotonic clock.
  std::int64_t began_ns() const { return began_ns_; }
  bool packs() const { return buffer_ != 0; }
  /// Once done: to be kept until the mark is reached.
  std::unique_ptr<cuda::DeviceWork> take_work() { return std::move(work_); }

 protected:
  GpuBatch(const StreamContext& context, int size, std::vector<DeviceTensor> tensors)
      : context_(context), size_(size), tensors_(std::move(tensors)) {}
  /// One stretch of memory on the device, and where it lies in the fusion buffer.
  struct Slice {
    void* memory;
    std::size_t at;     ///< a multiple of 16
    std::size_t bytes;  ///< of the memory, > 0
  };
  /// What becomes of the numbers on the way; the plain one: nothing.
  struct Change {
    DType dtype = DType::u8;
    double factor = 1;
    bool wide = false;  ///< they are f32 in the buffer
    bool none() const { return factor == 1 && !wide; }
  };

  /// @name With the context current
  /// @{
  /// Between memory and the fusion buffer, in few launches; without our kernels a copy for each.
  void move(const std::vector<Slice>& slices, const Change& change, bool gather);
  /// The stream waits for the tensors, then packs.
  void begin();
  /// The stream unpacks.  After that it has no more work for this batch.
  void end();
  void note();
  /// elements of t's type at @p memory become f32 at @p wide (gather), or these the others, times factor.  elements >
  /// 0.
  void convert(bool gather, const DeviceTensor& t, void* memory, std::size_t elements, cuda::Pointer wide,
               double factor);
  /// t's elements at @p from, times factor, go to @p to, which may be the same.
  void scale(const DeviceTensor& t, const void* from, void* to, double factor);
  cuda::Pointer scratch(std::size_t bytes);
  /// @}
  int size() const { return size_; }

  const StreamContext context_;
  const int size_;  ///< of the set
  std::vector<DeviceTensor> tensors_;
  std::vector<FusedGroup> fused_;
  cuda::Pointer buffer_ = 0;

 private:
  void wait();
  void pack(const FusedGroup& f);
  void move(const FusedGroup& f, bool gather);

  std::atomic<bool> queued_{false};
  std::unique_ptr<cuda::DeviceWork> work_;
  std::int64_t began_ns_ = 0;
  std::vector<cuda::Pointer> scratch_;  ///< until the end of the batch
  std::vector<std::shared_ptr<cuda::Mark>> marks_;
};

}  // namespace hvd::nccl
