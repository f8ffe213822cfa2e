/// @file child.h — starts another program as a child process.
#pragma once
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hvd {

struct ChildProgram {
  std::string program;                 ///< a path; with search_path also a name, looked up in PATH of `environment`
  std::vector<std::string> arguments;  ///< argv, with the program's name first
  bool search_path = false;
  std::optional<std::vector<std::string>> environment{};  ///< "NAME=value" each; nothing: this process's own
  int input = -1;                                         ///< standard input; -1: /dev/null
  int output = -1, errors = -1;                           ///< standard output and error; -1: this process's own
};

/// A note of the child before its exec, or instead of it.
struct ChildNote {
  int stage = 0;  ///< 0: exec has failed; others are the caller's
  int error = 0;  ///< errno
};

/// In the child: writes a note for the parent.
class ChildNotes {
 public:
  explicit ChildNotes(int fd) : fd_(fd) {}
  void say(int stage, int error) const;
  /// The child ends here: the parent gets the note instead of an exec.
  [[noreturn]] void fail(int stage, int error) const;

 private:
  int fd_;
};

struct StartedChild {
  pid_t pid = -1;  ///< -1: the program does not run; `failure` says why
  std::optional<ChildNote> failure{};
  std::vector<ChildNote> notes{};  ///< of a program that runs
};

/// Starts the program in a session of its own, with every signal at its default and none blocked.  The child is killed
/// when the calling thread ends.  Returns after its exec; a child that failed is reaped.
/// @param prepare  run in the child last before exec.  The child shares this process's memory until then, so only
///   system calls are allowed.  It may end with ChildNotes::fail().
/// Throws Error{unavailable} when no process can be made.  Thread: any.
StartedChild start_child(const ChildProgram& program, const std::function<void(const ChildNotes&)>& prepare = {});

}  // namespace hvd
