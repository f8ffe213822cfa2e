/// @file config.h — the variables that the runtime reads, and what follows from several of them.
///
/// A value is read where it is used, by its variable's name: config.flag("HVD_NCCL_WIDE").  The table of options
/// (options/table.h) has its type, default and limits.
#pragma once
#include <cstdint>

#include "options/configuration.h"

namespace hvd::core {

/// Read once at every init: Config::of_environment(options::Component::libhvd).
using Config = options::Configuration;

/// When ranks that wait for others are told of.
struct StallLimits {
  std::int64_t warn_ns = 0;      ///< 0: nothing is checked (HOROVOD_STALL_CHECK_DISABLE)
  std::int64_t tell_ns = 0;      ///< hvdrun hears of it at the soonest; later where steps take long
  std::int64_t shutdown_ns = 0;  ///< 0: never

  static StallLimits of(const Config& config);
};

}  // namespace hvd::core
