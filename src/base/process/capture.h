/// @file capture.h — runs a program within a time limit, and captures its output.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace hvd {

inline constexpr std::size_t most_captured_bytes = 1u << 20;  ///< of each stream; later bytes are discarded

struct CaptureResult {
  bool started = false;    ///< false: `err` says why the program cannot be executed
  bool timed_out = false;  ///< the program and all processes below it were killed at the time limit
  int code = -1;           ///< exit code; after a signal 128 + the signal's number
  std::string out, err;    ///< the first most_captured_bytes of each
  bool ok() const { return started && !timed_out && code == 0; }
};

/// Runs a program to its end.  Processes that it leaves are not waited for.  The program gets a session of its own, and
/// is killed when the calling thread ends.  A signal that ends this process, such as Ctrl-C's, first ends the program
/// and all processes below it (held_signals.h).
/// @param command  argv; the first word is looked up in PATH
/// @param input    the content of the program's standard input
/// Thread: any.
CaptureResult capture(const std::vector<std::string>& command, const std::string& input,
                      std::chrono::milliseconds limit);

}  // namespace hvd
