/// @file host_discovery.h — finds the hosts that an elastic job may use: from a program, a hostfile or a manifest.
///
/// Runs on the event loop's thread.  Never waits.  Times are seconds of the caller's clock.
#pragma once
#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/elastic/next_world.h"
#include "launcher/hosts/allocation.h"
#include "launcher/process/child_process.h"

namespace hvd::launcher {

/// The source of hosts while the job runs.
struct DiscoverySource {
  std::vector<std::string> command{};  ///< a program that prints the hosts, by its path, and its arguments; or empty
  std::string hostfile{};              ///< path of a hostfile or manifest; empty: no file
  std::function<Allocation(const std::string& text)> parse{};  ///< throws Error if the text is wrong
};

class HostDiscovery {
 public:
  explicit HostDiscovery(DiscoverySource source) : source_(std::move(source)) {}
  /// Kills the program's process group.
  ~HostDiscovery();

  struct Discovered {
    std::optional<std::vector<ElasticHost>> hosts{};  ///< all hosts, if the text has changed; else nothing
    /// Message for the user if the source fails, else empty.  The same reason is not given again until the source
    /// works, and not within a minute.
    std::string line{};
  };
  /// One turn of the event loop: asks the source every second.
  Discovered turn(double now);
  /// The program's process, while it runs.
  std::optional<pid_t> child() const;

 private:
  Discovered ask(double now);
  Discovered kill(const std::string& why, double now);
  Discovered read(double now);
  Discovered take(const std::string& text, double now);
  Discovered fails(const std::string& why, double now);
  void works(double now);

  const DiscoverySource source_;
  std::unique_ptr<ChildProcess> process_;
  std::string printed_;                 ///< by the running program
  bool is_killed_ = false;              ///< the program was killed here, so its end is not reported
  std::map<std::string, double> told_;  ///< by reason: the time of the last report to the user
  std::string said_;
  bool has_said_ = false;
  double next_ = 0, limit_ = 0;
};

}  // namespace hvd::launcher
