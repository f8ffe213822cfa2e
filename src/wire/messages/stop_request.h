/// @file stop_request.h — a guard is told to end its rank.
#pragma once
#include <csignal>
#include <string>

namespace hvd::wire {

/// hvdrun → guard: this signal now, SIGKILL after the grace period.
struct StopRequest {
  std::string reason;
  double grace_seconds = 5;
  int signal = SIGTERM;  ///< SIGINT and SIGHUP reach the ranks as themselves; anything else is read as SIGTERM
};
std::string to_json(const StopRequest& s);
StopRequest stop_request_from_json(const std::string& text);

}  // namespace hvd::wire
