/// @file share.cc — a POSIX shared-memory file that lives only until everybody has mapped it.
#include "transport/share.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/handle.h"

namespace hvd::transport {
namespace {

struct FileTraits {
  using type = int;
  static int null() noexcept { return -1; }
  static void abandon(int fd) noexcept { ::close(fd); }
};
using File = Handle<FileTraits>;

/// Removes the name again, whatever happens.
struct Name {
  std::string text;
  ~Name() {
    if (!text.empty()) shm_unlink(text.c_str());
  }
};

std::shared_ptr<void> map(int fd, std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) throw Error(Code::unavailable, "mmap", std::strerror(errno));
  return {p, [bytes](void* q) { munmap(q, bytes); }};
}

std::string random_name() {
  std::random_device random;
  char name[64];
  std::snprintf(name, sizeof name, "/hvd.%d.%08x%08x", static_cast<int>(getpid()), random(), random());
  return name;
}

}  // namespace

std::shared_ptr<void> share(Transport& t, const std::vector<int>& members, std::size_t bytes, double limit_seconds) {
  if (auto p = t.share_in_process(members, bytes)) return p;
  if (members.size() == 1) return map(-1, bytes);
  const Tag tag = Tag::share;
  if (t.rank() != members.front()) {
    const std::string name = receive_blocking(t, tag, limit_seconds, "the node's shared memory").body;
    if (name.empty()) throw Error(Code::unavailable, "init", "the node's first rank could not make shared memory");
    File fd(shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600));
    if (!fd)
      throw Error(Code::unavailable, "shm_open " + name, std::strerror(errno),
                  "is /dev/shm shared by the ranks of this host?");
    auto p = map(fd.get(), bytes);
    send_blocking(t, members.front(), tag, "mapped", limit_seconds);
    return p;
  }
  Name name;
  auto tell = [&](const std::string& text) {
    for (std::size_t i = 1; i < members.size(); ++i) send_blocking(t, members[i], tag, text, limit_seconds);
  };
  name.text = random_name();
  File fd(shm_open(name.text.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const int failed = fd ? posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)) : errno;
  if (failed != 0) {
    tell("");
    throw Error(Code::unavailable, "/dev/shm",
                "cannot reserve " + std::to_string(bytes >> 20) + " MiB: " + std::strerror(failed),
                "give the container more with --shm-size");
  }
  auto p = map(fd.get(), bytes);
  tell(name.text);
  for (std::size_t i = 1; i < members.size(); ++i)
    receive_blocking(t, tag, limit_seconds, "the ranks of this node to map its shared memory");
  return p;
}

}  // namespace hvd::transport
