/// @file config.h — the variables that the runtime reads, and settings that follow from several of them.
///
/// A value is read where it is used, by its variable's name: config.flag("HVD_NCCL_WIDE").  The table of options
/// (options/table.h) has its type, default and limits.
#pragma once
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
};

}  // namespace hvd::core
