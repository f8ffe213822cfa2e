/// @file script_shell.h — runs a script of hvdrun's on this host: the shell that starts the host's daemon.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "base/files/own_folder.h"
#include "launcher/process/child_process.h"

namespace hvd::launcher {

/// Reads all of standard input.  Throws Error{usage} if the input is longer than a script may be.
std::string script_on_stdin();

/// One /bin/sh.  The script holds the job's secret, so the shell reads it from its standard input.  TMPDIR of the shell
/// is a private folder.  Call become_subreaper() before.
class ScriptShell {
 public:
  explicit ScriptShell(const std::string& script);
  /// Kills every process below this one: nothing outlives the shell.
  ~ScriptShell();

  int output_fd() const { return shell_.output_fd(); }
  /// The output of the shell and its processes since the last call.
  std::string read_output() { return shell_.read_output(); }
  /// Gives the job a few seconds to end by itself.
  void stop();
  /// The shell's exit code, or 128 + signal if a signal killed it.  Nothing: the shell still runs.  After stop() the
  /// shell ends within seconds.
  std::optional<int> code();

 private:
  OwnFolder folder_;  ///< for the daemon's own files
  ChildProcess shell_;
  std::optional<std::chrono::steady_clock::time_point> deadline_{};
};

}  // namespace hvd::launcher
