/// @file share.cc — a POSIX shared-memory file that lives only until everybody has mapped it.
#include "transport/share.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/handle.h"
#include "transport/limit.h"

namespace hvd::transport {
namespace {

struct FileTraits {
  using type = int;
  static int null() noexcept { return -1; }
  static void abandon(int fd) noexcept { ::close(fd); }
};
using File = Handle<FileTraits>;

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

Sharing::Sharing(Transport& t, std::vector<int> members, std::size_t bytes)
    : transport_(t), members_(std::move(members)), bytes_(bytes) {}

Sharing::~Sharing() {
  if (!name_.empty()) shm_unlink(name_.c_str());
  for (Send& s : sends_) {
    transport_.abandon(s.ticket);
    new std::shared_ptr<std::string>(s.body);  // may still be read: kept until the end of the process
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

/// The first member makes the file and tells its name; an empty one means that it could not.
void Sharing::create() {
  const std::string name = random_name();
  File fd(shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd) name_ = name;
  const int failed = fd ? posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes_)) : errno;
  for (std::size_t i = 1; i < members_.size(); ++i) send(members_[i], failed ? "" : name);
  if (failed != 0)
    throw Error(Code::unavailable, "/dev/shm",
                "cannot reserve " + std::to_string(bytes_ >> 20) + " MiB: " + std::strerror(failed),
                "give the container more with --shm-size");
  memory_ = map(fd.get(), bytes_);
}

void Sharing::open(const std::string& name) {
  if (name.empty()) throw Error(Code::unavailable, "memory", "the node's first rank could not make shared memory");
  File fd(shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600));
  const int failed = fd ? 0 : errno;
  send(members_.front(), "opened");  // the name is no longer needed, well or not
  if (failed != 0)
    throw Error(Code::unavailable, "shm_open " + name, std::strerror(failed),
                "is /dev/shm shared by the ranks of this host?");
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
  if (left_ == 0 && !name_.empty()) shm_unlink(std::exchange(name_, {}).c_str());
  if (std::erase_if(sends_, [this](const Send& s) { return transport_.test(s.ticket); }) > 0) moved = true;
  return moved;
}

std::shared_ptr<void> share(Transport& t, const std::vector<int>& members, std::size_t bytes, double limit_seconds) {
  Sharing sharing(t, members, bytes);
  Limit limit(limit_seconds);
  for (sharing.step(); !sharing.done(); sharing.step())
    if (!limit.pause())
      throw Error(Code::timeout, "init", "waited too long for the ranks of this node to map its shared memory",
                  "did every rank call init?");
  return sharing.memory();
}

}  // namespace hvd::transport
