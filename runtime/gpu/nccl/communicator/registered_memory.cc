#include "gpu/nccl/communicator/registered_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace hvd::nccl {

RegisteredMemory& RegisteredMemory::process() {
  static RegisteredMemory& only = *new RegisteredMemory;  // never destroyed: see the file's comment
  return only;
}

RegisteredMemory::Block RegisteredMemory::take(const Library& library, cuda::Gpu& gpu, std::size_t bytes) {
  constexpr std::size_t page = 2 << 20;  // of the device
  const std::size_t size = std::max((bytes + page - 1) / page, std::size_t{1}) * page;
  {
    std::lock_guard lock(mutex_);
    for (Known& known : all_)
      if (!known.is_used && known.ordinal == gpu.ordinal() && known.block.bytes == size &&
          (!known.after || known.after->reached())) {
        known.is_used = true;
        return known.block;
      }
  }
  if (!library.mem_alloc)
    throw Error(Code::unavailable, "ncclMemAlloc",
                library.path + " is NCCL " + version_text(library.version) + ", 2.19 or later is needed");
  Block block{nullptr, size};
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  library.check(library.mem_alloc(&block.data, size), "ncclMemAlloc", nullptr);
  if (!block.data) throw Error(Code::unavailable, "ncclMemAlloc", "no memory for " + std::to_string(size) + " bytes");
  std::lock_guard lock(mutex_);
  all_.push_back({block, gpu.ordinal(), true, nullptr});
  any_.store(true, std::memory_order_release);
  return block;
}

void RegisteredMemory::give_back(const void* data, std::shared_ptr<cuda::Mark> after) {
  std::lock_guard lock(mutex_);
  for (Known& known : all_) {
    if (known.block.data != data) continue;
    known.is_used = false;
    known.after = std::move(after);
  }
}

std::optional<RegisteredMemory::Block> RegisteredMemory::block_of(const void* data) const {
  const auto* at = static_cast<const char*>(data);
  std::lock_guard lock(mutex_);
  for (const Known& known : all_) {
    const auto* begin = static_cast<const char*>(known.block.data);
    if (begin <= at && at < begin + known.block.bytes) return known.block;
  }
  return std::nullopt;
}

}  // namespace hvd::nccl
