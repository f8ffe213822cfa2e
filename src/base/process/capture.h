/// @file capture.h — runs a helper program to its end, within a time limit, and captures its output.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace hvd {

struct CaptureResult {
  bool started = false;    ///< false: `err` says why the program cannot be executed
  bool timed_out = false;  ///< the program was killed, with all of its process group
  int code = -1;           ///< exit code; 128 + signal
  std::string out, err;    ///< the first MiB of each
  bool ok() const { return started && !timed_out && code == 0; }
};

/// @param command  looked up in PATH; runs in a session of its own, dies with the calling thread
/// @param input    its standard input
/// Thread: any.
CaptureResult capture(const std::vector<std::string>& command, const std::string& input,
                      std::chrono::milliseconds limit);

}  // namespace hvd
