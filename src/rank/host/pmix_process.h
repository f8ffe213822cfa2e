/// @file pmix_process.h — the PMIx server of a host's ranks, in a child of the host daemon.
///
/// Only MPI needs libpmix, and libpmix may crash or hang: without HOME, by a configuration file, by a client.  In a
/// separate process it cannot end the job.  That process also changes its environment for libpmix.
///
/// Frames between the two (wire/messages/message.h):
///   daemon → server   daemon_manifest and pmix, as hvdrun sent them
///                     release: the server sends waiting frames and ends
///   server → daemon   pmix_environment, once for each rank
///                     pmix, for hvdrun
/// A server that cannot serve ends with an exit code above 0.  If it knows the reason, it first sends
/// PmixMessage::Kind::broken.
#pragma once
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rank/streams/outbox.h"
#include "wire/channel/channel.h"

namespace hvd::rank {

struct PmixStart {
  std::string mpi_folder;  ///< of the libmpi.so.40 that hvdrun found; empty: the loader's own folders
  std::string folder;      ///< for libpmix's files
  std::string host;        ///< this host's name in the job
  int first_rank = 0;      ///< of this host
};

class PmixProcess {
 public:
  /// Forks: this process must have one thread.  The child keeps all open descriptors.  Throws Error{unavailable}.
  explicit PmixProcess(const PmixStart& start);
  /// Kills the server and waits for it.
  ~PmixProcess();
  PmixProcess(const PmixProcess&) = delete;
  PmixProcess& operator=(const PmixProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// Readable when receive() has something.
  int fd() const { return connection_->fd(); }
  void send(wire::Type type, std::string body);
  /// Sends waiting frames, then returns the next frame of the server, or nothing.
  std::optional<wire::Frame> receive();
  /// @p status  by waitpid(2), where the caller has reaped the server
  void set_ended(int status) { status_ = status; }
  /// How the server ended: "was killed by signal 11"; nothing while it runs.
  std::optional<std::string> end() const;
  /// Asks the server to end and returns its last frames, which come within 200 ms or not at all.
  std::vector<wire::Frame> last_words();

 private:
  pid_t pid_ = -1;
  std::unique_ptr<wire::Connection> connection_;
  Outbox outbox_;
  std::optional<int> status_;
};

}  // namespace hvd::rank
