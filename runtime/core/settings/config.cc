#include "core/settings/config.h"

#include <algorithm>

namespace hvd::core {

StallLimits StallLimits::of(const Config& config) {
  constexpr std::int64_t tell_ns = 5'000'000'000;
  const auto ns = [](double seconds) { return static_cast<std::int64_t>(seconds * 1e9); };
  StallLimits limits;
  if (!config.flag("HOROVOD_STALL_CHECK_DISABLE"))
    limits.warn_ns = ns(config.number("HOROVOD_STALL_CHECK_TIME_SECONDS"));
  limits.tell_ns = std::min(tell_ns, limits.warn_ns);
  limits.shutdown_ns = ns(config.number("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"));
  return limits;
}

}  // namespace hvd::core
