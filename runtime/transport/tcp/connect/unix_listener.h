/// @file unix_listener.h — the listening unix socket of a rank, for ranks of the same user on the same host.
///
/// The file name of the socket is removed immediately.  Other processes connect through /proc/PID/fd/N of the owner.
/// The kernel allows this only to processes that may inspect the owner.  So other users cannot connect, and no file is
/// left when the process ends.  If other processes may not inspect the owner, because it has extra capabilities, the
/// socket has an abstract name instead.
#pragma once
#include <optional>
#include <string>

#include "base/file.h"

namespace hvd::transport::tcp {

class UnixListener {
 public:
  /// Makes the socket, and checks that a call succeeds.  nullopt: this system allows no such socket.
  static std::optional<UnixListener> open();
  int fd() const { return socket_.get(); }
  /// The argument for call_address().
  const std::string& path() const { return path_; }

 private:
  UnixListener(Fd socket, Fd name, std::string path)
      : socket_(std::move(socket)), name_(std::move(name)), path_(std::move(path)) {}
  static std::optional<UnixListener> without_name();
  static std::optional<UnixListener> abstract();

  Fd socket_, name_;  ///< name_: keeps the inode of the removed file; path_ leads to this descriptor
  std::string path_;
};

/// Identifies the boot, /dev/shm, the PID namespace and the user namespace of this process.  Ranks with equal texts can
/// share memory, and can reach each other's UnixListener.
std::string machine_identity();

}  // namespace hvd::transport::tcp
