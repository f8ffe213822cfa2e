/// @file stop_request.h — the order to end a rank.
#pragma once
#include <csignal>
#include <string>

namespace hvd::wire {

/// hvdrun → guard: send `signal` now, and SIGKILL after the grace.
struct StopRequest {
  std::string reason;
  double grace_seconds = 5;
  int signal = SIGTERM;  ///< SIGINT or SIGHUP; any other value is read as SIGTERM
};
std::string to_json(const StopRequest& s);
StopRequest stop_request_from_json(const std::string& text);

}  // namespace hvd::wire
