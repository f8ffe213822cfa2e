/// @file child_process.h — one child process whose output is read: mpirun, or the shell that starts a daemon.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace hvd::launcher {

inline constexpr std::size_t most_output_bytes = 64u << 10;  ///< of a child's output that are kept: the last

/// One child, from fork() to waitpid().
class ChildProcess {
 public:
  /// stdin is @p input, or /dev/null where that is empty; stdout and stderr come out of output_fd().  The child gets
  /// its own session (the terminal's Ctrl-C is ours alone), no blocked or ignored signal, and SIGKILL when we die.
  /// Throws Error{unavailable} when it cannot be executed.
  ChildProcess(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
               const std::string& input = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// Non-blocking; -1 after the end of the output was read.
  int output_fd() const { return output_.get(); }
  /// Reads without waiting and returns what was read; output() keeps most_output_bytes.
  std::string read_output();
  const std::string& output() const { return text_; }

  /// What waitpid() said; nothing while it runs.
  std::optional<int> status();
  /// What status() has said already.
  std::optional<int> known_status() const { return status_; }
  /// To its process group.
  void signal(int number);

 private:
  pid_t pid_ = -1;
  Fd output_;
  std::string text_;
  std::optional<int> status_;
};

}  // namespace hvd::launcher
