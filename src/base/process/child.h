/// @file child.h — starts another program as a child process.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace hvd {

struct ChildProgram {
  std::string program;                 ///< a path; with search_path also a name to look up in PATH of `environment`
  std::vector<std::string> arguments;  ///< argv, including the program's name
  bool search_path = false;
  std::optional<std::vector<std::string>> environment{};  ///< "NAME=value" texts; nothing: this process's own
  int input = -1;                                         ///< standard input; -1: /dev/null
  int output = -1, errors = -1;                           ///< standard output and error; -1: this process's own
};

/// A note that the child sends to its parent before exec, or when it fails.
struct ChildNote {
  int stage = 0;  ///< 0: exec has failed; other numbers are defined by the caller
  int error = 0;  ///< errno
};

/// Writes notes for the parent.  Used in the child.
class ChildNotes {
 public:
  explicit ChildNotes(int fd) : fd_(fd) {}
  void say(int stage, int error) const;
  /// Sends the note and ends the child.  The parent gets the note as StartedChild::failure.
  [[noreturn]] void fail(int stage, int error) const;

 private:
  int fd_;
};

struct StartedChild {
  pid_t pid = -1;  ///< -1: the program does not run; `failure` says why
  std::optional<ChildNote> failure{};
  std::vector<ChildNote> notes{};  ///< the notes of ChildNotes::say()
};

/// Starts the program, with all signals at their defaults and unblocked.  The program leads a process group; it leads a
/// session too if this process has a terminal.  Returns after the child's exec, or after the child has failed; a failed
/// child is reaped.  The child is killed when the calling thread ends.
/// @param prepare  called in the child directly before exec.  The child shares this process's memory until exec, so
/// only system calls are allowed.  @p prepare may call ChildNotes::fail()
/// Throws Error{unavailable} if a pipe or a process cannot be made.  Thread: any.
StartedChild start_child(const ChildProgram& program, const std::function<void(const ChildNotes&)>& prepare = {});

/// Appends the bytes from a child that can be read now to @p text.  Drops the bytes beyond a size of @p most.  Closes
/// @p fd at the end of the stream.  Returns the number of bytes read, at most @p count.
std::size_t read_some(Fd& fd, std::string& text, std::size_t most, std::size_t count = SIZE_MAX);

}  // namespace hvd
