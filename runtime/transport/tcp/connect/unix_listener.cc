#include "transport/tcp/connect/unix_listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "base/process/maker.h"
#include "base/random.h"
#include "transport/tcp/connect/listen_address.h"

namespace hvd::transport::tcp {
namespace {

Fd new_socket() { return Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

/// True if other processes can connect.  Makes and accepts a test connection.
bool can_be_called(const Fd& listener, const std::string& path) {
  const CallAddress to = call_address(path);
  const Fd caller = new_socket();
  if (!caller || ::connect(caller.get(), reinterpret_cast<const sockaddr*>(&to.at), to.bytes) != 0) return false;
  return static_cast<bool>(Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
}

}  // namespace

std::optional<UnixListener> UnixListener::open() {
  if (auto listener = without_name()) return listener;
  return abstract();
}

std::optional<UnixListener> UnixListener::without_name() {
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    // base/files/leftovers.h removes such a file from /dev/shm if the process dies before unlink().
    const std::string file = std::string(folder) + "/hvd." +
                             hvd::to_text(maker_of(::getpid()).value_or(Maker{::getpid(), 0, 0})) + "." +
                             random_letters(16);
    Fd socket = new_socket();
    const CallAddress at = call_address(file);
    if (!socket || ::fchmod(socket.get(), 0600) != 0 ||
        ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at.at), at.bytes) != 0)
      continue;
    Fd name(::open(file.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
    ::unlink(file.c_str());
    const std::string path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(name.get());
    if (name && ::listen(socket.get(), 4096) == 0 && can_be_called(socket, path))
      return UnixListener(std::move(socket), std::move(name), path);
  }
  return std::nullopt;
}

std::optional<UnixListener> UnixListener::abstract() {
  Fd socket = new_socket();
  const std::string path = "@hvd." + random_letters(26);
  const CallAddress at = call_address(path);
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at.at), at.bytes) != 0 ||
      ::listen(socket.get(), 4096) != 0)
    return std::nullopt;
  return UnixListener(std::move(socket), Fd(), path);
}

std::string machine_identity() {
  std::string text = boot_id();
  // Through /proc/PID/fd, a process of another user namespace can open no memory and no sockets of this one.
  for (const char* path : {"/dev/shm", "/proc/self/ns/pid", "/proc/self/ns/user"}) {
    struct stat about {};
    const bool known = ::stat(path, &about) == 0;
    text += ":" + std::to_string(!known ? 0 : path[1] == 'd' ? about.st_dev : about.st_ino);
  }
  return text;
}

}  // namespace hvd::transport::tcp
