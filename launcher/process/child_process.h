/// @file child_process.h — one child process whose output is read: mpirun, or the shell that starts a daemon.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace hvd::launcher {

inline constexpr std::size_t most_output_bytes = 64u << 10;  ///< the most that is kept of a child's output: its end

/// One child, from fork() to waitpid().
class ChildProcess {
 public:
  /// Starts @p command.  stdin is @p input, or /dev/null when @p input is empty.  output_fd() delivers stdout and
  /// stderr.  The child has no terminal, so the terminal's Ctrl-C reaches hvdrun alone.  No signal is blocked or
  /// ignored in the child.  The child gets SIGKILL when hvdrun dies.  Throws Error{unavailable} if the command cannot
  /// be executed.
  ChildProcess(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
               const std::string& input = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// Non-blocking; -1 after the end of the output.
  int output_fd() const { return output_.get(); }
  /// Reads without waiting and returns the new output.  Ends after about @p most_bytes, since a child may write for
  /// ever.  output() keeps most_output_bytes.
  std::string read_output(std::size_t most_bytes = SIZE_MAX);
  const std::string& output() const { return text_; }

  /// waitpid()'s status; nothing while the child runs.
  std::optional<int> status();
  /// The last result of status(); makes no system call.
  std::optional<int> known_status() const { return status_; }
  /// Sends a signal to the child's process group.
  void signal(int number);

 private:
  pid_t pid_ = -1;
  Fd output_;
  std::string text_;
  std::optional<int> status_;
};

}  // namespace hvd::launcher
