#include "core/status/rank_status.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

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

void RankStatus::waits(std::string_view name, std::int64_t since_ns) {
  page_->turn.fetch_add(1, std::memory_order_acq_rel);
  std::size_t n = 0;
  for (; n < std::min(name.size(), std::size(page_->waits_for) - 1); ++n)
    page_->waits_for[n].store(name[n], std::memory_order_relaxed);
  page_->waits_for[n].store('\0', std::memory_order_relaxed);
  page_->waits_ns.store(since_ns, std::memory_order_relaxed);
  page_->turn.fetch_add(1, std::memory_order_release);
}

RankStatus::~RankStatus() {
  if (page_ != &own_) ::munmap(page_, wire::status_page_bytes);
}

}  // namespace hvd::core
