/// @file unix_listener.h — where other processes of this host, and of this user, reach a rank.
///
/// The socket has no name that outlives its making: others call it through /proc/PID/fd/N of its owner, where the
/// kernel lets in who may look into that process.  So it cannot be reached by other users, or found, and nothing stays
/// behind however the process ends.  Where the process may not be looked into (it has capabilities of its own), the
/// socket has an abstract name instead.
#pragma once
#include <optional>
#include <string>

#include "base/file.h"

namespace hvd::transport::tcp {

class UnixListener {
 public:
  /// nullopt: this system lets nobody make one.
  static std::optional<UnixListener> open();
  int fd() const { return socket_.get(); }
  /// For call_address().
  const std::string& path() const { return path_; }

 private:
  UnixListener(Fd socket, Fd name, std::string path)
      : socket_(std::move(socket)), name_(std::move(name)), path_(std::move(path)) {}
  static std::optional<UnixListener> without_name();
  static std::optional<UnixListener> abstract();

  Fd socket_, name_;  ///< name_: holds the inode, by which others find the socket
  std::string path_;
};

/// What ranks that can share memory, and reach each other's UnixListener, have in common: the boot, /dev/shm, and the
/// namespaces of process ids and of users.
std::string machine_identity();

}  // namespace hvd::transport::tcp
