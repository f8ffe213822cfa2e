#include "memory/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace hvd::memory {
namespace {

const std::uint64_t page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));

/// The size of the arena: all memory of the machine.  0 if the process's address space or file size is limited.  A file
/// of that size would use up the limit, or end the process.
std::uint64_t wanted_bytes() {
  rlimit limit{};
  for (int what : {RLIMIT_AS, RLIMIT_FSIZE})
    if (getrlimit(static_cast<__rlimit_resource_t>(what), &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return 0;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::uint64_t{1} << 30;  // the sanitizers' shadow memory grows with each mapping
#else
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes;
#endif
}

void* map(int fd, std::uint64_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) return nullptr;
  madvise(p, bytes, MADV_DONTDUMP);  // a core dump would read the whole mapping
  return p;
}

}  // namespace

Arena& Arena::process() {
  // Never destroyed: tensors may be freed while the process exits.
  static Arena* arena = new Arena;
  return *arena;
}

Arena::Arena() : pid_(getpid()) {
  const std::uint64_t bytes = wanted_bytes();
  if (bytes == 0) return;
  fd_ = memfd_create("hvd-arena", MFD_CLOEXEC);
  struct stat about {};
  if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0 || fstat(fd_, &about) != 0) return;
  void* p = map(fd_, bytes);
  if (!p) return;
  base_ = static_cast<unsigned char*>(p);
  bytes_ = bytes;
  inode_ = about.st_ino;
  free_[0] = bytes;
}

ArenaName Arena::name() const { return {pid_, fd_, bytes_, inode_}; }

bool Arena::forked() const { return getpid() != pid_; }

/// Takes the pages from the system now.  Returns false if there are not enough; the caller then calls give_back() for
/// those taken.
bool Arena::populate(std::uint64_t at, std::uint64_t bytes) {
  if (madvise(base_ + at, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  // Before Linux 5.14: fallocate fails if there is no room.  Then the loop touches the pages.
  if (fallocate(fd_, 0, static_cast<off_t>(at), static_cast<off_t>(bytes)) != 0) return false;
  for (std::uint64_t i = 0; i < bytes; i += page_bytes) *const_cast<volatile unsigned char*>(base_ + at + i) = 0;
  return true;
}

void Arena::give_back(std::uint64_t at, std::uint64_t bytes) {
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at), static_cast<off_t>(bytes));
  std::lock_guard lock(mutex_);
  auto [it, fresh] = free_.emplace(at, bytes);
  if (auto after = std::next(it); after != free_.end() && after->first == at + bytes) {
    it->second += after->second;
    free_.erase(after);
  }
  if (it == free_.begin()) return;
  if (auto before = std::prev(it); before->first + before->second == it->first) {
    before->second += it->second;
    free_.erase(it);
  }
}

void* Arena::allocate(std::size_t bytes) {
  if (!base_ || forked() || bytes > bytes_) return nullptr;
  const std::uint64_t rounded = bytes == 0 ? page_bytes : (bytes + page_bytes - 1) / page_bytes * page_bytes;
  std::uint64_t at = 0;
  {
    std::lock_guard lock(mutex_);
    auto it = free_.begin();
    while (it != free_.end() && it->second < rounded) ++it;
    if (it == free_.end()) return nullptr;
    at = it->first;
    if (it->second > rounded) free_[at + rounded] = it->second - rounded;
    free_.erase(at);
  }
  if (!populate(at, rounded)) {
    give_back(at, rounded);
    return nullptr;
  }
  std::lock_guard lock(mutex_);
  live_[at] = rounded;
  return base_ + at;
}

bool Arena::free(void* data) {
  const auto at = offset(data, 0);
  if (!at) return false;
  if (forked()) return true;  // the memory is the parent's
  std::uint64_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    auto it = live_.find(*at);
    if (it == live_.end()) return true;  // freed twice, or no beginning: malloc does not know it either
    bytes = it->second;
    live_.erase(it);
  }
  give_back(*at, bytes);
  return true;
}

std::shared_ptr<unsigned char> map_arena(const ArenaName& name) {
  const Arena& mine = Arena::process();
  if (name.bytes == 0) return nullptr;
  if (name.pid == getpid()) return {mine.base(), [](unsigned char*) {}};
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return nullptr;
  const std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat about {};
  // In another container /proc may show another process under this pid.
  const bool right =
      fstat(fd, &about) == 0 && about.st_ino == name.inode && static_cast<std::uint64_t>(about.st_size) == name.bytes;
  void* p = right ? map(fd, name.bytes) : nullptr;
  close(fd);
  if (!p) return nullptr;
  return {static_cast<unsigned char*>(p), [bytes = name.bytes](unsigned char* q) { munmap(q, bytes); }};
}

}  // namespace hvd::memory
