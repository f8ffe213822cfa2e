/// @file host_discovery.h — follows which hosts an elastic job may use: by a program, a hostfile or a manifest.
///
/// Thread: the event loop's.  Never waits.
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

/// Where hosts come from while the job runs.
struct DiscoverySource {
  std::string program{};   ///< prints the hosts; empty: there is no program
  std::string hostfile{};  ///< or a manifest; read again when it changes; empty: there is no file
  std::function<Allocation(const std::string& text)> parse{};  ///< throws Error
};

class HostDiscovery {
 public:
  explicit HostDiscovery(DiscoverySource source) : source_(std::move(source)) {}

  struct Discovered {
    std::optional<std::vector<ElasticHost>> hosts{};  ///< all hosts, if they have changed
    /// Why there is no answer.  A reason is given once until there is an answer, and at most once a minute.
    std::string line{};
  };
  Discovered turn(double now);
  /// The program's process, while it runs.
  std::optional<pid_t> child() const;

 private:
  Discovered ask(double now);
  Discovered read(double now);
  Discovered take(const std::string& text, double now);
  Discovered fails(const std::string& why, double now);
  void works(double now);

  const DiscoverySource source_;
  std::unique_ptr<ChildProcess> process_;
  bool is_overdue_ = false;             ///< the program was killed for its delay, so its end is not reported
  std::map<std::string, double> told_;  ///< by reason: when the user was told
  std::string said_;
  bool has_said_ = false;
  double next_ = 0, limit_ = 0;
};

}  // namespace hvd::launcher
