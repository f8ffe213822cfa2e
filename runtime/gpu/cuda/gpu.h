/// @file gpu.h — one GPU of this process: the framework's own context, and what we keep there.
///
/// The context is the device's primary one, which the frameworks use too, so their
/// pointers, streams and events mean the same to us.  It is never given back:
/// another holder may be at work when this process ends.  Nothing here waits for
/// the device.  Any thread, unless it says otherwise.
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

/// The default stream of a GPU, which is never given back.
inline constexpr gpu::StreamId default_stream = 1;
inline bool is_default(Stream stream) { return stream == nullptr || stream == legacy; }

/// An event of ours, recorded on a stream.  Goes back to its GPU's pool, to be used again.
class Mark final : public gpu::StreamMark {
 public:
  /// To be recorded next.
  Mark(Gpu& gpu, Event event, bool timed, gpu::StreamId stream);
  ~Mark() override;
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  Event event() const { return event_; }
  Gpu& gpu() const { return gpu_; }
  /// Of marks that are made one after the other, the later has the larger number.
  std::uint64_t number() const { return number_; }
  /// That it was recorded on, where a caller's: see mark_caller().
  gpu::StreamId stream() const override { return stream_; }
  /// What came before it on its stream is done.
  bool reached() const;
  /// Later work of @p stream comes after it.
  void hold(Stream stream) const;
  /// How long after @p before it was reached; both are timed, and reached.  With the context current.
  std::int64_t since_ns(const Mark& before) const;

 private:
  Gpu& gpu_;
  const Event event_;
  const bool timed_;
  const std::uint64_t number_;
  const gpu::StreamId stream_;
};

/// Of a tensor that has one: all marks of callers are made by Gpu::mark_caller().
inline const Mark& mark_of(const gpu::DeviceTensor& tensor) { return static_cast<const Mark&>(*tensor.ready); }

/// What a process set has on a GPU, or is about to put there, that may wait for other ranks.  Any thread.
///
/// The driver's cuMemFree waits for the device.  Say that a set frees memory while another one's kernel waits for a
/// peer, and that the peer does the same the other way round: then both wait for ever.  Within a set there is one order
/// on all ranks, so nothing of the set itself is in its way.
class DeviceWork {
 public:
  /// of: the set, only its address counts.
  DeviceWork(Gpu& gpu, const void* of);
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;
  /// All of it is queued, before @p mark.
  void queued(std::shared_ptr<Mark> mark);

 private:
  friend class Gpu;
  Gpu& gpu_;
  const void* const of_;
  std::shared_ptr<Mark> end_;
};

class Gpu final : public gpu::LocalGpu {
 public:
  /// The process's object for a visible device.  Throws Error: usage for a number that is none, unavailable when the
  /// driver refuses.
  static Gpu& at(int ordinal);

  int ordinal() const override { return ordinal_; }
  std::shared_ptr<gpu::StreamMark> mark_caller(gpu::StreamHandle stream) override;
  void lend_result(void* result, gpu::StreamHandle stream) override;
  bool free_result(void* result) override { return take_back(reinterpret_cast<Pointer>(result)); }
  const std::string& name() const { return name_; }
  /// "GPU-0123…": what nvidia-smi and the launcher's plan say.
  const std::string& uuid() const { return uuid_; }
  /// The first number of its compute capability: 9 is Hopper.
  int generation() const { return generation_; }
  Context context() const { return context_; }
  const Driver& driver() const { return driver_; }

  /// @name With the context current (CurrentContext)
  /// @{
  /// A stream of the highest priority that does not wait for the default stream.
  Stream make_stream();
  /// A mark recorded on @p stream now.  timed: elapsed() between two works.  whole_context: behind what all streams
  /// have been given; Error{unavailable} where the driver cannot, Error{usage} while one of them is being captured.
  /// id: of a caller's stream.
  std::shared_ptr<Mark> mark(Stream stream, bool timed = false, gpu::StreamId id = 0);
  /// Device memory from memory_source(): at least @p bytes, at a multiple of 256.  When the device is full, the idle
  /// memory of our pool is returned first.  @p stream: the first to use the memory.  Throws Error{unavailable} with the
  /// device, the bytes asked for, the bytes free and the bytes that we hold.  of: see DeviceWork.
  Pointer allocate(std::size_t bytes, Stream stream, const void* of = nullptr);
  /// Page-locked host memory, at least @p bytes.
  void* allocate_pinned(std::size_t bytes);
  /// Copies all @p pieces into or out of @p buffer, in one launch for every Table::most; units are bytes.
  void copy(bool gather, std::span<const Piece> pieces, Pointer buffer, Stream stream);
  /// The same, times @p factor; units are elements.  wide: the buffer is of f32, and the tensors of
  /// narrower floats; 8-bit ones only so.  Error{internal}: HVD_SCALE_KERNELS has no kernel for it.
  void scale(bool gather, DType dtype, bool wide, std::span<const Piece> pieces, Pointer buffer, double factor,
             Stream stream);
  /// @}

  /// Gives memory back without calling the driver.  Nothing may use it any longer but work that comes before @p after
  /// on its stream.
  void free(Pointer address, std::shared_ptr<Mark> after = nullptr);
  void free_pinned(void* address, std::shared_ptr<Mark> after = nullptr);
  /// Memory of allocate() is used on @p stream from now on: after free_anywhere() it is used again only behind the work
  /// on that stream.  whole_context: the streams are not known, and the caller frees the memory when nothing uses it.
  void lend(Pointer address, Stream stream);
  /// Half of the multiprocessors that are not reserved yet, one at least while there is one; and back.
  int reserve();
  void unreserve(int processors);
  /// Returns memory that was freed, and that the device no longer uses, to its source, if that source pools memory
  /// itself (torch's allocator does).  allocate() and free_anywhere() do so too.
  void tidy() noexcept;
  /// Blocks of memory, the device's and pinned, that are given out now.
  std::size_t given() const;
  /// See Driver.
  bool capturing(Stream stream) const;
  /// 0 where the driver does not say it, for a stream of each thread's own, and for all of a context.  Not while the
  /// stream is being captured.
  gpu::StreamId id_of(Stream stream) const;
  /// Our kernels can be used (they were built, and for this GPU); else why not.
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
  /// One of our kernels.
  struct Kernel {
    Function function = nullptr;
    unsigned blocks = 0;  ///< of it that the device runs at a time
  };
  void load_all(Module module);
  Kernel load(Module module, const std::string& name);
  void launch(const Kernel& kernel, std::span<const Piece> pieces, const Units& units, Pointer buffer, double factor,
              Stream stream);

  /// Memory that was given back, by size.
  struct Free {
    Pointer address;
    std::shared_ptr<Mark> after;
  };
  using Pool = std::map<std::size_t, std::vector<Free>>;
  /// Memory that is given out.
  struct Block {
    std::size_t size;
    const MemorySource* source;  ///< that keeps what comes back itself; nullptr: it is for a pool of ours
  };
  using Given = std::unordered_map<Pointer, Block>;
  /// Memory that goes back to a source behind a mark.
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
  int reserved_ = 0;                                                    ///< of them
  std::array<Kernel, 2> copies_;                                        ///< [gather]
  std::array<std::array<Kernel, 2>, std::size(scale_units)> scales_{};  ///< [order of HVD_SCALE_KERNELS][gather]

  std::mutex work_mutex_;  ///< taken before mutex_
  std::vector<DeviceWork*> work_;
  mutable std::mutex mutex_;
  std::array<std::vector<Event>, 2> events_;  ///< [timed]
  Given given_, pinned_;
  std::unordered_map<Pointer, Stream> lent_;
  std::vector<std::pair<Pointer, Stream>> late_;  ///< came back while the stream was being captured
  Pool free_, free_pinned_;
  std::vector<Leaving> leaving_;
};

/// A result that comes back from the caller, of whatever GPU.  False: no GPU's memory.
bool free_anywhere(void* result);

/// The kernels' image that was built in; nullptr: built without nvcc.
const void* kernel_image();

}  // namespace hvd::cuda
