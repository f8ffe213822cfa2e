/// @file cleanup_result.h — what a finished job had left on a host.
#pragma once
#include <string>
#include <vector>

namespace hvd::wire {

/// guard → hvdrun: what was left of the job on its host when all its ranks had ended.
struct CleanupResult {
  std::vector<std::string> ended;  ///< names of processes that were killed
  std::vector<std::string> files;  ///< removed from /dev/shm
  std::vector<std::string> left;   ///< "1234 name": processes that could not be ended
};
std::string to_json(const CleanupResult& s);
CleanupResult cleanup_result_from_json(const std::string& text);

}  // namespace hvd::wire
