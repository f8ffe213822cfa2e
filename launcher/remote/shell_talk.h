/// @file shell_talk.h — a conversation with a shell on another host, within time limits.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace hvd::launcher {

/// A conversation with one process, which ends with this object.  Thread: only the thread that made the object.
class ShellTalk {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Throws Error{unavailable} if the command cannot be run.  @param deadline  of the whole conversation
  ShellTalk(const std::vector<std::string>& command, Time deadline);
  ~ShellTalk();
  ShellTalk(const ShellTalk&) = delete;
  ShellTalk& operator=(const ShellTalk&) = delete;

  /// Writes all of @p text.  False: the process has ended, or read nothing for @p patience.
  bool say(std::string_view text, std::chrono::seconds patience);
  /// Writes the first @p size bytes of a file, then closes the process's input.  Calls @p told with the number of bytes
  /// written, after each piece.
  bool send_file(int fd, std::uint64_t size, std::chrono::seconds patience,
                 const std::function<void(std::uint64_t)>& told);
  /// The next line of the process's output.  Nothing: the output has ended, or no line came for @p patience.
  std::optional<std::string> line(std::chrono::seconds patience);

  bool timed_out() const { return timed_out_; }
  /// The beginning of what the process has written to its standard error.
  const std::string& errors() const { return errors_; }
  /// Ends the conversation: reads remaining output for some seconds.  Returns waitpid()'s status.
  int finish();

 private:
  bool wait(bool to_write, Time until);

  pid_t pid_ = -1;
  Fd in_, out_, err_;
  std::string said_, errors_;
  Time deadline_;
  bool timed_out_ = false;
};

}  // namespace hvd::launcher
