/// @file share.cc — a POSIX shared-memory file whose name is removed after all members have opened the file.
///
/// If /dev/shm has no room, the creator makes a file without a name (memfd).  A container's /dev/shm has 64 MiB by
/// default.  The other members then open the file through the creator's /proc/PID/fd.  For this the members must see
/// each other's processes.
#include "transport/share.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/process/maker.h"
#include "base/random.h"
#include "transport/limit.h"

namespace hvd::transport {
namespace {

std::shared_ptr<void> map(int fd, std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) throw Error(Code::unavailable, "mmap", std::strerror(errno));
  return {p, [bytes](void* q) { munmap(q, bytes); }};
}

std::string random_name() {
  // base/files/leftovers.h removes files with such names after their process has died.
  return "/hvd." + to_text(maker_of(getpid()).value_or(Maker{getpid(), 0, 0})) + "." + random_letters(16);
}

Error no_memory(const std::string& why) {
  return Error(Code::unavailable, "/dev/shm", why,
               why.ends_with(errno_text(EFBIG)) ? "raise the limit on the size of files: ulimit -f unlimited"
                                                : "give the container more: docker run --shm-size=1g");
}

}  // namespace

Sharing::Sharing(Transport& t, std::vector<int> members, std::size_t bytes)
    : transport_(t), members_(std::move(members)), bytes_(bytes) {}

Sharing::~Sharing() {
  if (!name_.empty()) shm_unlink(name_.c_str());
  for (Send& s : sends_) {
    transport_.abandon(s.ticket);
    new std::shared_ptr<std::string>(s.body);  // the transport may still read the body, so it is never freed
  }
}

void Sharing::send(int to, const std::string& text) {
  auto body = std::make_shared<std::string>(text);
  const Ticket ticket = transport_.isend(to, Tag::share, body->data(), body->size());
  sends_.push_back({ticket, std::move(body)});
}

void Sharing::begin() {
  begun_ = true;
  memory_ = transport_.share_in_process(members_, bytes_);
  if (memory_) return;
  if (members_.size() == 1) {
    memory_ = map(-1, bytes_);
  } else if (transport_.rank() == members_.front()) {
    left_ = static_cast<int>(members_.size()) - 1;
    create();
  } else {
    left_ = 1;
  }
}

/// Makes the file on the first member.  Sends the other members its path, or the error.
void Sharing::create() {
  std::string path, why;
  if (const int failed = create_in_shm()) {
    why = std::string("cannot reserve ") + std::to_string((bytes_ >> 20) + 1) + " MiB: " + errno_text(failed);
    path = create_unnamed();
  } else {
    path = "/dev/shm" + name_;
  }
  for (std::size_t i = 1; i < members_.size(); ++i) send(members_[i], path.empty() ? why : path);
  if (path.empty()) throw no_memory(why);
  memory_ = map(file_.get(), bytes_);
}

/// Returns 0 or an errno.  Sets name_ if a file exists that must be unlinked.
int Sharing::create_in_shm() {
  const std::string name = random_name();
  file_ = Fd(shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file_) return errno;
  name_ = name;
  const int failed = posix_fallocate(file_.get(), 0, static_cast<off_t>(bytes_));
  if (failed) shm_unlink(std::exchange(name_, {}).c_str());
  return failed;
}

/// Makes a file without a name.  Returns "PATH INODE", or "" if the file cannot be made.  The inode proves the path:
/// in another container's /proc the same PID is another process.
std::string Sharing::create_unnamed() {
  file_ = Fd(memfd_create("hvd-node", MFD_CLOEXEC));
  struct stat about {};
  if (!file_ || posix_fallocate(file_.get(), 0, static_cast<off_t>(bytes_)) != 0 || fstat(file_.get(), &about) != 0)
    return "";
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file_.get()) + " " +
         std::to_string(about.st_ino);
}

void Sharing::open(const std::string& told) {
  if (!told.starts_with('/')) throw no_memory(told);
  const std::string path = told.substr(0, told.find(' '));
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  int failed = fd ? 0 : errno;
  struct stat about {};
  if (fd && path.size() < told.size() &&
      (fstat(fd.get(), &about) != 0 || std::to_string(about.st_ino) != told.substr(path.size() + 1)))
    failed = ESTALE;
  send(members_.front(), "opened");  // also after an error: the creator must not wait for this member
  if (failed != 0)
    throw Error(Code::unavailable, "opening " + path, std::strerror(failed),
                path.starts_with("/proc/") ? "give the ranks' containers more /dev/shm (--shm-size=1g)"
                                           : "is /dev/shm shared by the ranks of this host?");
  memory_ = map(fd.get(), bytes_);
}

bool Sharing::step() {
  bool moved = !begun_;
  if (!begun_) begin();
  while (left_ > 0) {
    auto message = transport_.poll(Tag::share);
    if (!message) break;
    moved = true;
    --left_;
    if (transport_.rank() != members_.front()) open(message->body);
  }
  if (left_ == 0) {
    if (!name_.empty()) shm_unlink(std::exchange(name_, {}).c_str());
    file_.reset();
  }
  if (std::erase_if(sends_, [this](const Send& s) { return transport_.test(s.ticket); }) > 0) moved = true;
  return moved;
}

namespace {

/// Waits up to 1 second for the end of the world.  Throws Error{peer_lost} if the world ends.  The creator unlinks the
/// file when it leaves a revoked world.  So this rank may fail to open the file before it learns that the world has
/// ended.
void throw_if_soon_revoked(const Transport& t) {
  for (Limit soon(1);;) {
    if (const std::string why = t.revoked(); !why.empty()) throw Error(Code::peer_lost, "init", why);
    if (!soon.pause()) return;
  }
}

}  // namespace

std::shared_ptr<void> share(Transport& t, const std::vector<int>& members, std::size_t bytes, double limit_seconds) {
  Sharing sharing(t, members, bytes);
  Limit limit(limit_seconds);
  try {
    for (sharing.step(); !sharing.done(); sharing.step()) {
      if (const std::string why = t.revoked(); !why.empty()) throw Error(Code::peer_lost, "init", why);
      if (!limit.pause())
        throw Error(Code::timeout, "init", "waited too long for the ranks of this node to map its shared memory",
                    "did every rank call init?");
    }
  } catch (const Error& e) {
    if (e.code == Code::unavailable) throw_if_soon_revoked(t);
    throw;
  }
  return sharing.memory();
}

}  // namespace hvd::transport
