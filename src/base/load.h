/// @file load.h — how busy this machine is.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace hvd {

/// How much longer than on an idle machine a thing may take now: 1 to 10, by the load of the last minute for each
/// processor.  For limits after which a wait is given up.
inline double load_factor() {
  double last_minute = 0;
  if (::getloadavg(&last_minute, 1) != 1) return 1;
  const long processors = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
  return std::clamp(last_minute / static_cast<double>(processors), 1.0, 10.0);
}

}  // namespace hvd
