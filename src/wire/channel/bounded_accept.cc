/// @file bounded_accept.cc — accept4() of the whole program, with some descriptors held back.
///
/// libzmq accepts every connection, without a limit.  Strangers with silent connections can use up all descriptors.
/// Then libzmq's listener of unix sockets aborts the process, its listener of TCP spins, and hvdrun can open no file.
///
/// libzmq finds this accept4() before the C library's, like a program's own malloc().  When few descriptors are left, a
/// new connection is closed at once, and a guard tries again.  Connections that have not proved the job's key end then,
/// the oldest first, so that the guard finds room.
///
/// Takes effect in every program that is linked with a listener.  local_channel.cc calls bounded_accept(), because a
/// sanitizer's library may have an accept4 that the linker finds first.
#include "bounded_accept.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "unproved.h"

namespace {

constexpr rlim_t held_back = 64;  ///< for files, pipes and later descriptors of libzmq

/// Descriptors are given from the lowest free one on.
bool is_scarce(int fd) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  return static_cast<rlim_t>(fd) >= limit.rlim_cur - std::min(held_back, limit.rlim_cur / 2);
}

std::atomic<bool (*)(int)> accept_check{nullptr};
std::atomic<hvd::wire::Unproved*> unproved{nullptr};

}  // namespace

namespace hvd::wire {

void set_accept_check(bool (*check)(int connection)) { accept_check = check; }

void end_unproved(bool (*has_proved)(int connection)) {
  static Unproved guests(has_proved);
  unproved = &guests;
}

int reserved_accept(int door, int flags) {
  return static_cast<int>(::syscall(SYS_accept4, door, nullptr, nullptr, flags));
}

int bounded_accept(int door, sockaddr* address, socklen_t* size, int flags) {
  const auto fd = static_cast<int>(::syscall(SYS_accept4, door, address, size, flags));
  bool (*const check)(int) = accept_check;
  if (fd >= 0 && check && !check(fd)) {
    ::close(fd);
    errno = EAGAIN;
    return -1;
  }
  Unproved* const guests = unproved;
  if (fd >= 0 && !is_scarce(fd)) {
    if (guests) guests->add(fd);
    return fd;
  }
  if (fd < 0 && errno != EMFILE) return -1;
  if (fd >= 0) ::close(fd);
  if (guests) guests->end_some();
  errno = ECONNABORTED;  // both of libzmq's listeners read this as a connection that has ended
  return -1;
}

}  // namespace hvd::wire

extern "C" __attribute__((visibility("default"))) int accept4(int door, sockaddr* address, socklen_t* size, int flags) {
  return hvd::wire::bounded_accept(door, address, size, flags);
}

extern "C" __attribute__((visibility("default"))) int accept(int door, sockaddr* address, socklen_t* size) {
  return accept4(door, address, size, 0);
}
