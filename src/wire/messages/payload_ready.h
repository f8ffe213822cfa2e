/// @file payload_ready.h — a host has its copy of the payload.
#pragma once
#include <string>

namespace hvd::wire {

/// guard → hvdrun: processes of the same user on that host can read the payload there while the guard lives.
struct PayloadReady {
  std::string path;
};
std::string to_json(const PayloadReady& ready);
/// Throws Error{usage}.
PayloadReady payload_ready_from_json(const std::string& text);

}  // namespace hvd::wire
