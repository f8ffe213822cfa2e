/// @file cleanup_result.h — leftovers of a finished job on one host.
#pragma once
#include <string>
#include <vector>

namespace hvd::wire {

/// guard → hvdrun: leftovers that the guard found after all ranks of its host had ended.
struct CleanupResult {
  std::vector<std::string> ended;  ///< names of processes that the guard killed
  std::vector<std::string> files;  ///< files that the guard removed from /dev/shm
  std::vector<std::string> left;   ///< "1234 name": processes that survived
};
std::string to_json(const CleanupResult& s);
CleanupResult cleanup_result_from_json(const std::string& text);

}  // namespace hvd::wire
