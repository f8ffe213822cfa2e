/// @file gpu.h — one GPU of this process: its context, and the runtime's memory, events and kernels there.
///
/// The context is the device's primary context, which the frameworks use too.  So the frameworks' pointers, streams and
/// events are valid in the runtime.  The context is never released: the framework may still use it when this process
/// ends.  Only allocate() may wait for the device: cuMemFree does, when device memory is full.  Any thread, unless a
/// comment says otherwise.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpu/cuda/copy_table.h"
#include "gpu/cuda/driver.h"
#include "gpu/cuda/memory.h"
#include "gpu/local_gpu.h"

namespace hvd::cuda {

class Gpu;

/// The id of a GPU's default stream, which is never destroyed.
inline constexpr gpu::StreamId default_stream = 1;
inline bool is_default(Stream stream) { return stream == nullptr || stream == legacy; }

/// A CUDA event of the runtime, recorded on a stream.  The destructor returns the event to its GPU's pool for reuse.
class Mark final : public gpu::StreamMark {
 public:
  /// Does not record the event: the caller does that next.
  Mark(Gpu& gpu, Event event, bool timed, gpu::StreamId stream);
  ~Mark() override;
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  Event event() const { return event_; }
  Gpu& gpu() const { return gpu_; }
  /// A mark that is made later has a larger number.
  std::uint64_t number() const { return number_; }
  /// The number of the next mark.
  static std::uint64_t next_number() { return made.load(std::memory_order_relaxed); }
  /// The stream of a mark from mark_caller(), else 0.
  gpu::StreamId stream() const override { return stream_; }
  /// Returns true when the work before the mark on its stream is done.
  bool reached() const;
  /// Makes later work of @p stream wait for the mark.
  void hold(Stream stream) const;
  /// Returns the ns from the mark @p before to this mark.  Both marks must be timed. 0: the GPU has not reached both.
  /// The context must be current.
  std::int64_t since_ns(const Mark& before) const;

 private:
  static inline std::atomic<std::uint64_t> made{0};
  Gpu& gpu_;
  const Event event_;
  const bool timed_;
  const std::uint64_t number_;
  const gpu::StreamId stream_;
};

/// The mark of a tensor that has `ready`.  All marks of callers come from Gpu::mark_caller(), so the cast is safe.
inline const Mark& mark_of(const gpu::DeviceTensor& tensor) { return static_cast<const Mark&>(*tensor.ready); }

/// Work of a process set on a GPU, queued or about to be queued, that may wait for other ranks.  Any thread.
///
/// The driver's cuMemFree waits for the device, so cuMemFree beside such work can deadlock.  Say that rank 0 frees
/// memory of set A while a kernel of set B waits there for rank 1.  Rank 1 frees memory of set B while a kernel of set
/// A waits there for rank 0.  Then both ranks wait for ever.  Within one set, all ranks work in the same order, so the
/// set's own work is no obstacle.
class DeviceWork {
 public:
  /// of: identifies the set; only the address counts.
  DeviceWork(Gpu& gpu, const void* of);
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;
  /// Declares that all of the work is queued, before @p mark.
  void queued(std::shared_ptr<Mark> mark);

 private:
  friend class Gpu;
  Gpu& gpu_;
  const void* const of_;
  std::shared_ptr<Mark> end_;
};

/// Size: one object for each resource of a device that its thread and its users share.
class Gpu final : public gpu::LocalGpu {
 public:
  /// The process's object for a visible device.  Throws Error: usage if no GPU has this number, unavailable if the
  /// driver fails.
  static Gpu& at(int ordinal);

  int ordinal() const override { return ordinal_; }
  std::shared_ptr<gpu::StreamMark> mark_caller(gpu::StreamHandle stream) override;
  void lend_result(void* result, gpu::StreamHandle stream) override;
  bool free_result(void* result) override { return take_back(reinterpret_cast<Pointer>(result)); }
  const std::string& name() const { return name_; }
  /// The form that nvidia-smi and the launcher's plan use: "GPU-0123…".
  const std::string& uuid() const { return uuid_; }
  /// The major number of the compute capability: 9 is Hopper.
  int generation() const { return generation_; }
  Context context() const { return context_; }
  const Driver& driver() const { return driver_; }

  /// @name Functions that need the context current (CurrentContext)
  /// @{
  /// Returns a stream of the highest priority that does not synchronize with the default stream.
  Stream make_stream();
  /// Records a mark on @p stream.  timed: since_ns() may be used.  id: the id of a caller's stream.  With
  /// whole_context, the mark follows the work that all streams have received.  Then throws Error{unavailable} if the
  /// driver lacks cuCtxRecordEvent, and Error{usage} while one of the streams is being captured.
  std::shared_ptr<Mark> mark(Stream stream, bool timed = false, gpu::StreamId id = 0);
  /// A timed mark of a caller's stream that is about to wait for results.  Waits without a mark between them share it.
  /// nullptr: the stream belongs to another device.
  std::shared_ptr<Mark> arrival(Stream stream, gpu::StreamId id);
  /// Allocates at least @p bytes of device memory from memory_source(), aligned to 256 bytes.  When the device is full,
  /// frees the idle memory of the pool first.  @p stream: the first stream that uses the memory.  of: see DeviceWork.
  /// Throws Error{unavailable}.  The error's text has the device, the requested bytes, the free bytes and the bytes
  /// that the runtime holds.
  Pointer allocate(std::size_t bytes, Stream stream, const void* of = nullptr);
  /// Allocates at least @p bytes of page-locked host memory.
  void* allocate_pinned(std::size_t bytes);
  /// Copies all @p pieces into @p buffer (gather) or out of it.  One launch serves up to Table::most pieces.  Units are
  /// bytes.
  void copy(bool gather, std::span<const Piece> pieces, Pointer buffer, Stream stream);
  /// Like copy(), but multiplies each element by @p factor.  Units are elements.  wide: the buffer is f32, and the
  /// tensors are of a narrower float.  8-bit floats need wide.  Throws Error{internal} if HVD_SCALE_KERNELS has no
  /// kernel for the dtype.
  void scale(bool gather, DType dtype, bool wide, std::span<const Piece> pieces, Pointer buffer, double factor,
             Stream stream);
  /// Adds the hash of each piece to the 64-bit number at its place in @p sums.  Units are bytes.
  void hash(std::span<const Piece> pieces, Pointer sums, Stream stream);
  /// @}

  /// Gives memory back without a call to the driver.  After this call, only work before @p after on its stream may use
  /// the memory.
  void free(Pointer address, std::shared_ptr<Mark> after = nullptr);
  void free_pinned(void* address, std::shared_ptr<Mark> after = nullptr);
  /// Declares that @p stream uses memory of allocate() from now on.  After free_anywhere(), the memory is reused only
  /// after the work on that stream.  With whole_context the function does nothing: the caller must free the memory
  /// after its last use.
  void lend(Pointer address, Stream stream);
  /// Reserves half of the free multiprocessors, rounded up, and returns their number; 0: none is free.  unreserve()
  /// gives multiprocessors back.
  int reserve();
  void unreserve(int processors);
  /// Returns freed memory to its source once the device no longer uses the memory.  Concerns only sources that pool
  /// memory themselves, such as torch's allocator.  allocate() and free_anywhere() do the same.
  void tidy() noexcept;
  /// The number of blocks that are given out now, in device memory and in pinned memory.
  std::size_t given() const;
  /// See Driver::capturing().
  bool capturing(Stream stream) const override;
  /// The id of a stream.  0: the driver cannot tell, the stream is per_thread, or it is whole_context.  The stream must
  /// not be in a capture.
  gpu::StreamId id_of(Stream stream) const;
  /// The reason for which this GPU cannot run the runtime's kernels; empty: it can.
  const std::string& no_kernels() const { return no_kernels_; }

 private:
  friend class Mark;
  friend class DeviceWork;
  Gpu(const Driver& driver, int ordinal);
  void load_kernels();
  void record_all(Event event);
  Event take_event(bool timed);
  void give_back(Event event, bool timed);
  bool take_back(Pointer address);
  void take_late();
  void trim(const void* of);
  bool others_work(const void* of) const;
  void let_go();
  [[noreturn]] void refuse(std::size_t bytes, const std::string& why) const;
  friend bool free_anywhere(void* result);
  /// One of the runtime's kernels.
  struct Kernel {
    Function function = nullptr;
    unsigned blocks = 0;  ///< blocks of the kernel that the device can run at a time
  };
  void load_all(Module module);
  Kernel load(Module module, const std::string& name);
  void launch(const Kernel& kernel, std::span<const Piece> pieces, const Units& units, Pointer buffer, double factor,
              Stream stream);

  /// A block of a pool.
  struct Free {
    Pointer address;
    std::shared_ptr<Mark> after;
  };
  using Pool = std::map<std::size_t, std::vector<Free>>;
  /// A block that is given out.
  struct Block {
    std::size_t size;
    const MemorySource* source;  ///< takes the block back and pools it; nullptr: a pool of this object takes it
  };
  using Given = std::unordered_map<Pointer, Block>;
  /// A block that returns to its source once the mark is reached.
  struct Leaving {
    Pointer address;
    std::shared_ptr<Mark> after;
    const MemorySource* source;
  };
  Pointer allocate_from(const MemorySource& source, std::size_t bytes, Stream stream, const void* of);
  Pointer take(Pool& pool, std::size_t size, Given& given);
  void put(Pool& pool, Given& given, Pointer address, std::shared_ptr<Mark> after);

  const Driver& driver_;
  const int ordinal_;
  Device device_ = 0;
  Context context_ = nullptr;
  std::string name_, uuid_, no_kernels_;
  int processors_ = 1, generation_ = 0;
  int reserved_ = 0;              ///< of processors_
  std::array<Kernel, 2> copies_;  ///< [gather]
  Kernel hash_;
  std::array<std::array<Kernel, 2>, std::size(scale_units)> scales_{};  ///< [order of HVD_SCALE_KERNELS][gather]

  std::mutex arrival_mutex_;  ///< taken before mutex_
  std::shared_ptr<Mark> arrival_;
  std::uint64_t arrived_before_ = 0;  ///< Mark::next_number() after arrival_

  std::mutex work_mutex_;  ///< taken before mutex_
  std::vector<DeviceWork*> work_;
  mutable std::mutex mutex_;
  std::array<std::vector<Event>, 2> events_;  ///< [timed]
  Given given_, pinned_;
  std::unordered_map<Pointer, Stream> lent_;
  /// Blocks that came back while their stream was being captured.
  std::vector<std::pair<Pointer, Stream>> late_;
  Pool free_, free_pinned_;
  std::vector<Leaving> leaving_;
};

/// Takes back a result from the caller, on any GPU.  Returns false if the address is not memory of a Gpu.
bool free_anywhere(void* result);

/// The image of the kernels in libhvd; nullptr: libhvd was built without nvcc.
const void* kernel_image();

}  // namespace hvd::cuda
