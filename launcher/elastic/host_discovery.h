/// @file host_discovery.h — which hosts an elastic job may use, asked again and again: a program's answer, a
/// hostfile or a manifest.
///
/// Thread: the event loop's; nothing here waits.
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
  std::string program{};   ///< prints them; empty: there is none
  std::string hostfile{};  ///< or a manifest: read anew when it changes; empty: there is none
  std::function<Allocation(const std::string& text)> parse{};  ///< throws Error
};

class HostDiscovery {
 public:
  explicit HostDiscovery(DiscoverySource source) : source_(std::move(source)) {}

  struct Discovered {
    std::optional<std::vector<ElasticHost>> hosts{};  ///< as they are now, where they have changed
    /// Why there is no answer: once for each reason until there is one, and at most once a minute.
    std::string line{};
  };
  Discovered turn(double now);
  /// Its child, whose end it waits for.
  std::optional<pid_t> child() const;

 private:
  Discovered ask(double now);
  Discovered read(double now);
  Discovered take(const std::string& text, double now);
  Discovered fails(const std::string& why, double now);
  void works(double now);

  const DiscoverySource source_;
  std::unique_ptr<ChildProcess> process_;
  bool is_overdue_ = false;             ///< the program was killed, and its end is not a reason of its own
  std::map<std::string, double> told_;  ///< reasons, and when the user heard of them
  std::string said_;
  bool has_said_ = false;
  double next_ = 0, limit_ = 0;
};

}  // namespace hvd::launcher
