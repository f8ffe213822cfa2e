/// @file host_lookup.h — looks hosts' names up while an event loop goes on.
#pragma once
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "launcher/hosts/resolve.h"

namespace hvd::launcher {

/// Each name is looked up in a thread of its own.  A thread that waits for the name service does not delay the end of
/// the process.
class HostLookup {
 public:
  using LookUp = std::function<ResolvedHost(const std::string& name)>;
  /// @param look_up  called in other threads, perhaps after the end of this object
  explicit HostLookup(LookUp look_up) : look_up_(std::move(look_up)) {}

  struct Answer {
    std::optional<ResolvedHost> host{};  ///< nothing: ask again at the next turn
    std::string line{};                  ///< for the user; empty: nothing to tell
  };
  /// Waits some milliseconds at most, and not while another name is asked.  A name without an answer within
  /// limit_seconds is unknown.
  /// @param now  seconds of the caller's clock
  Answer ask(const std::string& name, double now);

  static constexpr double limit_seconds = 10, silence_seconds = 2;

 private:
  struct Asked {
    std::future<ResolvedHost> answer;
    double since = 0;
    bool is_told = false, is_late = false;
  };
  void begin(const std::string& name, double now);

  const LookUp look_up_;
  std::map<std::string, Asked> asked_;
};

}  // namespace hvd::launcher
