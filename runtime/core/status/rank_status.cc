#include "core/status/rank_status.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "wire/shared/inherited_memory.h"

namespace hvd::core {

RankStatus::RankStatus(int fd, int recorder_fd) : recorder_(recorder_fd) {
  void* const page = wire::map_inherited(fd, wire::status_page_bytes, wire::status_page_mark);
  if (!page) return;
  page_ = static_cast<wire::StatusPage*>(page);
  before_ = page_->steps.load(std::memory_order_relaxed);
}

void RankStatus::place(wire::RankPhase where) {
  page_->place_ns.store(memory::now_ns(), std::memory_order_relaxed);
  page_->place.store(where, std::memory_order_release);
}

namespace {

template <std::size_t size>
void store(std::atomic<char> (&to)[size], std::string_view text) {
  std::size_t n = 0;
  for (; n < std::min(text.size(), size - 1); ++n) to[n].store(text[n], std::memory_order_relaxed);
  to[n].store('\0', std::memory_order_relaxed);
}

}  // namespace

void RankStatus::waits(std::string_view name, std::int64_t since_ns, wire::GpuProgress gpu, std::string_view gpu_late,
                       std::string_view what) {
  page_->turn.fetch_add(1, std::memory_order_acq_rel);
  store(page_->waits_for, name);
  store(page_->gpu_late, gpu_late);
  store(page_->waits_what, what);
  page_->gpu.store(gpu, std::memory_order_relaxed);
  page_->waits_ns.store(since_ns, std::memory_order_relaxed);
  page_->turn.fetch_add(1, std::memory_order_release);
}

RankStatus::~RankStatus() {
  if (page_ != &own_) ::munmap(page_, wire::status_page_bytes);
}

}  // namespace hvd::core
