/// @file gpu_batch.h — the parts of a batch on a GPU's stream without NCCL: waits, packing, unpacking, hashes, marks.
///
/// Small tensors of one dtype and reduction share a fusion buffer.  The runtime's kernels pack and unpack them.  The
/// host waits for no step:
///
///   stream: wait for each tensor's mark → gather → NCCL → scatter → hash, with HVD_AGREEMENT → mark
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/cuda/gpu.h"
#include "gpu/nccl/communicator/registered_memory.h"
#include "gpu/nccl/launch/batch_hashes.h"
#include "gpu/nccl/launch/scaling.h"

namespace hvd::nccl {

/// Tensors that are reduced by one call.
struct FusedGroup {
  std::vector<std::size_t> tensors;  ///< indices of the tensors in the launch
  std::vector<std::size_t> at;       ///< [tensors] offset of each tensor in the fusion buffer, in bytes
  std::size_t begin = 0, bytes = 0;  ///< the group's place in the fusion buffer, in bytes
  Scaling scaling;
  bool wide = false;
};

/// Groups tensors for reduction.  Pure function, with the same result on all ranks.
/// @param buffer_bytes  out: the size of the fusion buffer that the groups need
/// @param parts         a group's elements divide evenly into this number of parts
std::vector<FusedGroup> fuse(const std::vector<DeviceTensor>& tensors, int size, const Capabilities& capabilities,
                             std::size_t* buffer_bytes, int parts = 1);

/// The fusion buffer of one stream.  Grows as needed.
///
/// If the device has no memory left, the buffer is page-locked host memory.  Every device of a 64-bit process accesses
/// such memory at the same address (CUDA driver API, "Unified Addressing").  NCCL accepts it like device memory.  A
/// rank with a full GPU is thus slower.  But it makes the same calls as the other ranks, so it need not tell them.
class FusionBuffer {
 public:
  /// of: the set, see cuda::DeviceWork.
  explicit FusionBuffer(cuda::Gpu& gpu, const void* of = nullptr) : gpu_(gpu), of_(of) {}
  ~FusionBuffer() { release(); }
  FusionBuffer(const FusionBuffer&) = delete;
  FusionBuffer& operator=(const FusionBuffer&) = delete;
  /// Returns at least @p bytes, for use on @p stream alone.  The old content is lost.  The context must be current.
  /// kernels: the runtime's kernels pack the buffer, not the driver's copies between device addresses.
  cuda::Pointer of(std::size_t bytes, cuda::Stream stream, bool kernels);
  /// From now on of() returns @p memory if it is large enough.  The caller keeps the ownership.
  void prefer(const RegisteredMemory::Block& memory) { preferred_ = memory; }
  bool on_host() const { return on_host_; }
  std::shared_ptr<cuda::Mark> last;  ///< recorded after the buffer's last use

 private:
  cuda::Gpu& gpu_;
  const void* const of_;
  void release();
  void ask(std::size_t bytes, cuda::Stream stream, bool kernels);

  RegisteredMemory::Block preferred_;
  cuda::Pointer address_ = 0;
  std::size_t bytes_ = 0;
  bool on_host_ = false;
};

/// The callers' marks for which one stream of the runtime waits already.  Later work on that stream needs no second
/// wait.
class StreamWaits {
 public:
  /// Returns true if the stream waits already for @p mark, or for a later mark of the same caller's stream.  If not,
  /// the caller must make the stream wait.
  bool add(const cuda::Mark& mark);

 private:
  struct Last {
    gpu::StreamId stream;
    std::uint64_t number;  ///< the mark's number()
  };
  std::vector<Last> all_;
};

/// The place where a batch runs.
struct StreamContext {
  cuda::Gpu& gpu;
  cuda::Stream stream;
  FusionBuffer& buffer;  ///< the fusion buffer of `stream`
  StreamWaits& waits;    ///< the waits of `stream`
  const void* set;       ///< the set that owns the work: see cuda::DeviceWork
  Capabilities capabilities;
  bool timed;           ///< record marks between the parts, for the timeline
  bool hashes = false;  ///< hash the slices of results; all ranks of the set have the same value
};

/// The set's LaunchThread queues the whole batch.  The mark recorded after the batch tells when the GPU has finished
/// the batch.
class GpuBatch {
 public:
  virtual ~GpuBatch();
  GpuBatch(const GpuBatch&) = delete;
  GpuBatch& operator=(const GpuBatch&) = delete;

  /// Returns the device memory of a batch that will not be queued.  The caller frees the memory once no queued work can
  /// use it any longer.
  virtual std::vector<cuda::Pointer> take_rest();
  /// True if a part of the batch is queued, or may be, but not the whole batch.
  virtual bool midway() const = 0;

  /// True when the whole batch is queued.  Any thread.
  bool done() const { return queued_.load(std::memory_order_seq_cst); }
  /// Requires done().  The tensors with their results, and the mark that follows all work of the batch.
  std::vector<DeviceTensor>& tensors() { return tensors_; }
  const std::shared_ptr<cuda::Mark>& mark() const { return marks_.back(); }
  /// Without `timed`: one mark, at the end.  With `timed`: five marks.  The five marks are before the wait for the
  /// tensors, before packing, before NCCL, before unpacking, and at the end.
  const std::vector<std::shared_ptr<cuda::Mark>>& marks() const { return marks_; }
  /// The time of the first mark on the host's monotonic clock.
  std::int64_t began_ns() const { return began_ns_; }
  bool packs() const { return buffer_ != 0; }
  /// Requires done().  The caller keeps the result until the mark is reached.
  std::unique_ptr<cuda::DeviceWork> take_work() { return std::move(work_); }
  /// Requires done().  @p end: of the batch.  nullptr: nothing is hashed.
  std::shared_ptr<const gpu::SliceHashes> take_hashes(std::shared_ptr<const cuda::StreamEnd> end) {
    if (hashes_) hashes_->queued(std::move(end));
    return std::move(hashes_);
  }

 protected:
  GpuBatch(const StreamContext& context, int size, std::vector<DeviceTensor> tensors)
      : context_(context), size_(size), tensors_(std::move(tensors)) {}
  /// A range of device memory, and its place in the fusion buffer.
  struct Slice {
    void* memory;
    std::size_t at;     ///< offset in the fusion buffer in bytes, a multiple of 16
    std::size_t bytes;  ///< bytes of `memory`, > 0
  };
  /// The change of the elements between memory and buffer.  By default, no change.
  struct Change {
    DType dtype = DType::u8;
    double factor = 1;
    bool wide = false;  ///< the elements are f32 in the buffer
    bool none() const { return factor == 1 && !wide; }
  };

  /// @name Functions that need the context current
  /// @{
  /// Copies between memory and the fusion buffer, in few launches.  Without the runtime's kernels, makes one copy for
  /// each slice.
  void move(const std::vector<Slice>& slices, const Change& change, bool gather);
  /// Makes the stream wait for the tensors, and then pack them.
  void begin();
  /// Makes the stream unpack.  The stream then has no more work for this batch.
  void end();
  void note();
  /// gather: @p elements of t's dtype at @p memory are multiplied by @p factor and become f32 at @p wide.  Otherwise
  /// f32 at @p wide becomes t's dtype at @p memory.  @p elements must be > 0.
  void convert(bool gather, const DeviceTensor& t, void* memory, std::size_t elements, cuda::Pointer wide,
               double factor);
  /// Multiplies t's elements at @p from by @p factor, and writes them to @p to, which may equal @p from.
  void scale(const DeviceTensor& t, const void* from, void* to, double factor);
  cuda::Pointer scratch(std::size_t bytes);
  /// @}
  int size() const { return size_; }

  const StreamContext context_;
  const int size_;  ///< size of the set
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
  std::vector<cuda::Pointer> scratch_;  ///< kept until the end of the batch
  std::shared_ptr<BatchHashes> hashes_;
  std::vector<std::shared_ptr<cuda::Mark>> marks_;
};

}  // namespace hvd::nccl
