/// @file load.h — the load of this machine.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace hvd {

/// A factor for time limits: 1 on an idle machine, at most 10.  The factor is the last minute's load average divided by
/// the number of processors.
inline double load_factor() {
  double last_minute = 0;
  if (::getloadavg(&last_minute, 1) != 1) return 1;
  const long processors = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
  return std::clamp(last_minute / static_cast<double>(processors), 1.0, 10.0);
}

}  // namespace hvd
