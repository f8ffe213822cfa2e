/// @file config.h — the variables that the runtime reads, and settings that follow from several of them.
///
/// A value is read where it is used, by its variable's name: config.flag("HVD_NCCL_WIDE").  The table of options
/// (options/table.h) has its type, default and limits.
#pragma once
#include <algorithm>
#include <cstdint>

#include "options/configuration.h"

namespace hvd::core {

/// Read once at every init: Config::of_environment(options::Component::libhvd).
using Config = options::Configuration;

/// Times after which a wait for other ranks is reported.
struct StallLimits {
  std::int64_t warn_ns = 0;      ///< 0: no check (HOROVOD_STALL_CHECK_DISABLE)
  std::int64_t tell_ns = 0;      ///< the earliest report to hvdrun; later if steps take long
  std::int64_t shutdown_ns = 0;  ///< 0: never

  static StallLimits of(const Config& config);
  /// Nanoseconds after which a wait is reported to hvdrun: the larger of tell_ns and three steps, but at most warn_ns.
  /// While one rank evaluates or writes a checkpoint, the other ranks may wait for about three steps.
  std::int64_t worth_telling_ns(std::int64_t median_step_ns) const {
    return std::min(std::max(tell_ns, 3 * median_step_ns), warn_ns);
  }
  /// True if a wait has reached the user's limit.  @p paused: missing ranks do work that ends by itself.
  bool is_over(std::int64_t waited_ns, bool paused) const {
    constexpr std::int64_t longest_pause_ns = 600'000'000'000;
    return shutdown_ns > 0 && waited_ns >= shutdown_ns + (paused ? longest_pause_ns : 0);
  }
};

}  // namespace hvd::core
