/// @file payload_ready.h — a host has its copy of the payload.
#pragma once
#include <string>

namespace hvd::wire {

/// guard → hvdrun: while the guard lives, processes of this user on this host can read the payload at `path`.
struct PayloadReady {
  std::string path;
};
std::string to_json(const PayloadReady& ready);
/// Throws Error{usage}.
PayloadReady payload_ready_from_json(const std::string& text);

}  // namespace hvd::wire
