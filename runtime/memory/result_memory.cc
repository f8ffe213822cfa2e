#include "memory/result_memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace hvd::memory {

namespace {

constexpr std::size_t least_kept = 64 << 10;  ///< bytes; malloc itself keeps smaller blocks
constexpr std::size_t large_page = 2 << 20;
constexpr std::size_t process_keeps = 64 << 20;

}  // namespace

ResultMemory& ResultMemory::process() {
  static auto* const memory = new ResultMemory(process_keeps);  // never destroyed: threads may outlive it
  return *memory;
}

void* ResultMemory::take(std::size_t bytes) {
  if (bytes >= least_kept) {
    const std::lock_guard lock(mutex_);
    // The smallest block that is large enough, and at most twice as large as needed.
    auto best = kept_.end();
    for (auto i = kept_.begin(); i != kept_.end(); ++i)
      if (i->bytes >= bytes && i->bytes / 2 <= bytes && (best == kept_.end() || i->bytes < best->bytes)) best = i;
    if (best != kept_.end()) {
      void* const data = best->data;
      kept_bytes_ -= best->bytes;
      kept_.erase(best);
      return data;
    }
  }
  void* data = nullptr;
  if (bytes < large_page) return std::malloc(std::max<std::size_t>(bytes, 1));
  if (::posix_memalign(&data, large_page, bytes) != 0) return nullptr;
  ::madvise(data, bytes, MADV_HUGEPAGE);  // fewer page faults
  return data;
}

void ResultMemory::give_back(void* data) noexcept {
  const std::size_t bytes = data ? ::malloc_usable_size(data) : 0;
  if (bytes < least_kept || bytes > most_kept_bytes_) return std::free(data);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return std::free(data);
  try {
    kept_.push_back({data, bytes});
  } catch (...) { return std::free(data); }
  kept_bytes_ += bytes;
  for (; kept_bytes_ > most_kept_bytes_; kept_.pop_front()) {
    kept_bytes_ -= kept_.front().bytes;
    std::free(kept_.front().data);
  }
}

void ResultMemory::clear() noexcept {
  const std::lock_guard lock(mutex_);
  for (const KeptBlock& block : kept_) std::free(block.data);
  kept_.clear();
  kept_bytes_ = 0;
}

}  // namespace hvd::memory
