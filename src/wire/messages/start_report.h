/// @file start_report.h — how the start of a rank went.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace hvd::wire {

/// guard → hvdrun: the cores, GPU and Python that the rank got.
struct StartReport {
  std::int64_t pid = 0;
  std::vector<int> cpus;  ///< empty: not bound
  int threads = 0;        ///< OMP_NUM_THREADS; 0: the user's value stays
  std::string gpu;        ///< empty: none
  std::string python;     ///< "embedded", "exec", or empty for a command
  std::string warning;    ///< one line for the user, or empty
  int memory_node = -1;   ///< NUMA node whose memory the rank prefers; -1: none
};
std::string to_json(const StartReport& s);
StartReport start_report_from_json(const std::string& text);

/// rank → guard: the payload could not be run.  The death record gets Cause::unstarted.
struct StartFailure {
  int code = 2;
  std::string text, hint;
};
std::string to_json(const StartFailure& u);
StartFailure start_failure_from_json(const std::string& text);

}  // namespace hvd::wire
