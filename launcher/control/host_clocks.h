/// @file host_clocks.h — the clocks of a job's other hosts, and when guards are pinged to compare them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "launcher/control/clock.h"

namespace hvd::launcher {

/// Pure: the caller sends the pings.  All processes of a host share its clock.
///
/// Clocks drift by up to 50 µs a second.  A ping every ten seconds tells which rank failed first to half a
/// millisecond.  A timeline shows microseconds, so while one is recorded all ranks are pinged every second.
class HostClocks {
 public:
  explicit HostClocks(bool for_timeline) : for_timeline_(for_timeline) {}

  static constexpr int first_pings = 4;  ///< at once, where a comparison begins

  /// Ranks record for the timeline from now on, or do not.
  void set_for_timeline(bool on) {
    for_timeline_ = on;
    if (on) next_ping_ns_ = 0;
  }
  /// True: all ranks are pinged.  False: one rank of each host is pinged.
  bool asks_all() const { return for_timeline_; }
  /// Call it when a rank of another host has connected.  True: hvdrun pings this rank.
  bool begins_with(const std::string& host) { return clocks_.try_emplace(host).second || for_timeline_; }
  /// Returns true if the next pings are due.  The caller must then send them: the next time is counted from now.
  bool take_due(std::int64_t now_ns) {
    if (now_ns < next_ping_ns_) return false;
    next_ping_ns_ = now_ns + (for_timeline_ ? timeline_interval_ns : interval_ns);
    return true;
  }
  /// Takes an answer to a ping: see ClockEstimate::add().
  void add(const std::string& host, std::int64_t sent_ns, std::int64_t received_ns, std::int64_t guard_ns) {
    clocks_[host].add(sent_ns, received_ns, guard_ns);
  }
  /// Converts a time of a host's clock to hvdrun's clock.  Nothing: no ping of this host has been answered.
  std::optional<std::int64_t> our_ns(const std::string& host, std::int64_t guard_ns) const {
    const auto clock = clocks_.find(host);
    if (clock == clocks_.end() || !clock->second.known()) return std::nullopt;
    return guard_ns - clock->second.offset_ns();
  }

 private:
  static constexpr std::int64_t interval_ns = 10'000'000'000, timeline_interval_ns = 1'000'000'000;

  std::unordered_map<std::string, ClockEstimate> clocks_;  ///< of other hosts
  std::int64_t next_ping_ns_ = 0;
  bool for_timeline_;
};

}  // namespace hvd::launcher
