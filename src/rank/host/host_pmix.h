/// @file host_pmix.h — the host daemon's part of PMIx: the server process, and the start of ranks without it.
///
/// Ranks start without PMIx when the server cannot be started, ends, or does not answer in time.
#pragma once
#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rank/host/pmix_process.h"

namespace hvd::rank {

class HostPmix {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Starts the server process.  A failure is remembered as problem().
  void start(const PmixStart& start);
  bool is_running() const { return process_ != nullptr; }
  /// The reason for the lack of a server, for the user.  Empty: no server was wanted, or the server runs.
  const std::string& problem() const { return problem_; }
  /// 0: there is no server process.
  pid_t pid() const { return process_ ? process_->pid() : 0; }
  /// Call it after reaping the process @p pid.
  void take_end(pid_t pid, int status);

  /// Sends the job's manifest to the server.  The ranks' environments must then arrive within a time limit.
  void begin(const std::string& daemon_manifest, Time now);
  /// Call it when all ranks have their environment: ends the time limit.
  void environments_given() { due_.reset(); }
  bool is_awaited() const { return due_.has_value(); }
  /// Passes hvdrun's message to the server.  Ignores the message if there is no server.
  void send(std::string message);

  struct News {
    enum class Kind { environment, message, lost };
    Kind kind = Kind::message;
    int rank = -1;        ///< environment: for which rank
    std::string text{};   ///< environment: "NAME=value" texts, each ended by a zero byte
    wire::Frame frame{};  ///< message: for hvdrun
  };
  void add_to(std::vector<pollfd>& fds) const;
  /// The next event, or nothing.  `lost` comes once: is_running() is false from then on.
  std::optional<News> next(Time now);
  /// Asks the server to end and returns its last events.
  std::vector<News> last_words();
  /// Ends the server process.
  void end() { process_.reset(); }

 private:
  std::optional<News> event_of(const wire::Frame& frame);
  void lose(const std::string& how);

  std::unique_ptr<PmixProcess> process_;
  std::string problem_;
  std::optional<Time> due_;  ///< for the environments of the ranks
};

}  // namespace hvd::rank
