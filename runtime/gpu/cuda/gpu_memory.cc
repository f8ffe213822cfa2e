/// @file gpu_memory.cc — the memory of a Gpu: blocks on the device, and pinned blocks of the host.
#include <algorithm>

#include "base/error.h"
#include "gpu/cuda/gpu.h"

namespace hvd::cuda {
namespace {

constexpr unsigned host_portable = 1;
constexpr std::size_t least_block = 512, alignment = 256;

/// Rounds up in steps of an eighth of a power of two.  So tensors of nearly equal size can reuse the same blocks.
std::size_t rounded(std::size_t bytes) {
  if (bytes <= least_block) return least_block;
  std::size_t step = least_block / 2;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

/// The smallest valid size of a block.
std::size_t aligned(std::size_t bytes) {
  return std::max((bytes + alignment - 1) / alignment * alignment, least_block);
}

}  // namespace

/// Takes a block of exactly @p size out of the pool, if the block's last use has ended.  Returns 0 if there is none.
Pointer Gpu::take(Pool& pool, std::size_t size, Given& given) {
  std::shared_ptr<Mark> passed;  // destroyed without the lock, which ~Mark() takes
  std::lock_guard lock(mutex_);
  auto& blocks = pool[size];
  const auto it = std::find_if(blocks.begin(), blocks.end(), [this](const Free& f) {
    return !f.after || driver_.event_query(f.after->event()) == success;
  });
  if (it == blocks.end()) return 0;
  const Pointer address = it->address;
  passed = std::move(it->after);
  blocks.erase(it);
  given[address] = {size, nullptr};
  return address;
}

void Gpu::put(Pool& pool, Given& given, Pointer address, std::shared_ptr<Mark> after) {
  std::lock_guard lock(mutex_);
  const auto found = given.find(address);
  if (found == given.end()) return;
  const Block block = found->second;
  if (block.source)
    leaving_.push_back({address, std::move(after), block.source});
  else
    pool[block.size].push_back({address, std::move(after)});
  given.erase(found);
}

DeviceWork::DeviceWork(Gpu& gpu, const void* of) : gpu_(gpu), of_(of) {
  std::lock_guard lock(gpu_.work_mutex_);
  gpu_.work_.push_back(this);
}

DeviceWork::~DeviceWork() {
  std::lock_guard lock(gpu_.work_mutex_);
  std::erase(gpu_.work_, this);
}

void DeviceWork::queued(std::shared_ptr<Mark> mark) {
  std::lock_guard lock(gpu_.work_mutex_);
  end_ = std::move(mark);
}

/// The caller holds work_mutex_.
bool Gpu::others_work(const void* of) const {
  return std::any_of(work_.begin(), work_.end(), [&](const DeviceWork* w) {
    return w->of_ != of && !(w->end_ && driver_.event_query(w->end_->event()) == success);
  });
}

Pointer Gpu::allocate(std::size_t bytes, Stream stream, const void* of) {
  return allocate_from(memory_source(driver_), bytes, stream, of);
}

Pointer Gpu::allocate_from(const MemorySource& source, std::size_t bytes, Stream stream, const void* of) {
  take_late();
  let_go();
  const bool ours = !source.keeps();
  std::size_t size = ours ? rounded(bytes) : aligned(bytes);
  Pointer address = ours ? take(free_, size, given_) : 0;
  if (address) return address;
  int code = source.allocate(&address, size, ordinal_, stream);
  // An unused block of the unrounded size may fit.  Otherwise ask the source for the unrounded size.
  if (source.full(code)) {
    size = aligned(bytes);
    address = ours ? take(free_, size, given_) : 0;
    if (address) return address;
    trim(of);
    code = source.allocate(&address, size, ordinal_, stream);
  }
  if (code != success) refuse(size, source.text(code));
  std::lock_guard lock(mutex_);
  given_[address] = {size, ours ? nullptr : &source};
  return address;
}

/// Returns blocks to sources that pool memory themselves, once the device no longer uses the blocks.
void Gpu::let_go() {
  // ~Mark() takes the lock, and a source must not be called with the lock held.
  std::vector<Leaving> over;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(leaving_, [&](Leaving& l) {
      const bool reached = !l.after || driver_.event_query(l.after->event()) == success;
      if (reached) over.push_back(std::move(l));
      return reached;
    });
  }
  for (const Leaving& l : over) l.source->free(l.address);
}

void Gpu::tidy() noexcept {
  {
    std::lock_guard lock(mutex_);
    if (leaving_.empty()) return;
  }
  try {
    const CurrentContext current(driver_, context_);
    let_go();
  } catch (const Error&) {  // the driver is gone, and the memory with it
  }
}

/// Frees the idle blocks of the pool.  Does nothing while another set has work on the device (DeviceWork).  A set that
/// begins work meanwhile waits until this function ends.
void Gpu::trim(const void* of) {
  let_go();
  const std::lock_guard alone(work_mutex_);
  if (others_work(of)) return;
  std::vector<Free> idle;  // destroyed without the lock, which ~Mark() takes
  {
    std::lock_guard lock(mutex_);
    for (auto& [size, blocks] : free_)
      std::erase_if(blocks, [&](Free& f) {
        const bool over = !f.after || driver_.event_query(f.after->event()) == success;
        if (over) idle.push_back(std::move(f));
        return over;
      });
  }
  for (const Free& f : idle) driver_.mem_free(f.address);
}

void Gpu::refuse(std::size_t bytes, const std::string& why) const {
  auto mebibytes = [](std::size_t n) { return std::to_string(n >> 20) + " MiB"; };
  std::size_t free = 0, total = 0, held = 0;
  driver_.mem_info(&free, &total);
  {
    std::lock_guard lock(mutex_);
    for (const auto& [address, block] : given_) held += block.size;
  }
  throw Error(Code::unavailable, "cuda:" + std::to_string(ordinal_),
              "no device memory for " + (bytes < 1 << 20 ? std::to_string(bytes) + " bytes" : mebibytes(bytes)) + " (" +
                  std::to_string(free >> 20) + " of " + mebibytes(total) + " are free, " + mebibytes(held) +
                  " are this rank's fusion buffers and results): " + why,
              "a smaller HOROVOD_FUSION_THRESHOLD needs less; nvidia-smi lists the processes that use " + uuid_);
}

void Gpu::free(Pointer address, std::shared_ptr<Mark> after) { put(free_, given_, address, std::move(after)); }

std::size_t Gpu::given() const {
  std::lock_guard lock(mutex_);
  return given_.size() + pinned_.size();
}

void Gpu::lend(Pointer address, Stream stream) {
  if (stream == whole_context) return;
  std::lock_guard lock(mutex_);
  if (given_.count(address)) lent_[address] = stream;
}

/// Ignores errors of the driver, which may be gone when the process ends.  Then the memory is not needed any more.
bool Gpu::take_back(Pointer address) {
  Stream stream = nullptr;
  bool lent = false;
  {
    std::lock_guard lock(mutex_);
    if (!given_.count(address)) return false;
    const auto found = lent_.find(address);
    lent = found != lent_.end();
    if (lent) {
      stream = found->second;
      lent_.erase(found);
    }
  }
  try {
    const CurrentContext current(driver_, context_);
    if (lent && driver_.capturing(stream)) {
      std::lock_guard lock(mutex_);
      late_.emplace_back(address, stream);
    } else {
      free(address, lent ? mark(stream) : nullptr);
    }
    let_go();
  } catch (const Error&) {}
  return true;
}

/// Frees the blocks of late_ whose stream is no longer captured.  A mark on a captured stream would become part of the
/// graph, and would never be reached.
void Gpu::take_late() {
  std::vector<std::pair<Pointer, Stream>> late;
  {
    std::lock_guard lock(mutex_);
    if (late_.empty()) return;
    late.swap(late_);
  }
  for (const auto& [address, stream] : late) {
    if (!driver_.capturing(stream)) {
      free(address, mark(stream));
      continue;
    }
    std::lock_guard lock(mutex_);
    late_.emplace_back(address, stream);
  }
}

void* Gpu::allocate_pinned(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  if (const Pointer address = take(free_pinned_, size, pinned_)) return reinterpret_cast<void*>(address);
  void* address = nullptr;
  driver_.check(driver_.host_alloc(&address, size, host_portable), "cuMemHostAlloc");
  std::lock_guard lock(mutex_);
  pinned_[reinterpret_cast<Pointer>(address)] = {size, nullptr};
  return address;
}

void Gpu::free_pinned(void* address, std::shared_ptr<Mark> after) {
  put(free_pinned_, pinned_, reinterpret_cast<Pointer>(address), std::move(after));
}

}  // namespace hvd::cuda
