/// @file process.h — mpirun as our child, and everything else that ends up below us.
#pragma once
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace hvd::launcher {

/// mpirun, from fork to wait.
class Child {
 public:
  /// stdin is /dev/null; stdout and stderr come out of output_fd().  The child gets its own session (the terminal's
  /// Ctrl-C is ours alone), no blocked or ignored signal, and SIGKILL when we die.
  /// Throws Error{unavailable} when it cannot be executed.
  Child(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  /// Non-blocking; -1 after its end was read.
  int output_fd() const { return output_.get(); }
  /// Reads what is there; keeps the last 64 KiB.  Returns what is new.
  std::string read_output();
  const std::string& output() const { return text_; }

  /// What waitpid() said; nothing while it runs.  Reaps other orphans that became our children, too.
  std::optional<int> status();
  /// To its process group.
  void signal(int number);

 private:
  pid_t pid_ = -1;
  Fd output_;
  std::string text_;
  std::optional<int> status_;
};

/// Orphans below us become our children instead of init's.
void become_subreaper();

/// Kills every descendant of this process again and again until there is none, for at most @p limit_ms.  The names of
/// those that had not ended by themselves are added to @p ended.
bool kill_descendants(int limit_ms, std::vector<std::string>* ended = nullptr);

}  // namespace hvd::launcher
