#include "core/rank_status.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>

namespace hvd::core {

RankStatus::RankStatus(int fd) {
  // The variable may have come to a process that has something else open under that number: touch nothing of it.
  struct stat file {};
  if (fd < 0 || ::fstat(fd, &file) != 0 || file.st_size != static_cast<off_t>(wire::status_page_bytes)) return;
  if ((::fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) return;
  void* page = ::mmap(nullptr, wire::status_page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return;
  page_ = static_cast<wire::StatusPage*>(page);
  before_ = page_->steps.load(std::memory_order_relaxed);
  if (page_->mark == wire::status_page_mark) return;
  ::munmap(page, wire::status_page_bytes);
  page_ = &own_;
  before_ = 0;
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
