/// @file preflight.h — the checks that each remote host makes at every start of a job.
///
/// The checks are shell text, put before the text that starts the host's daemon.  So they need no extra connection, and
/// all hosts run them at once.  hvdrun doctor checks far more.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace hvd::launcher {

/// Programs and versions of this host, which each remote host must have too.  An empty field is not checked.
struct Preflight {
  std::string rank_program;    ///< hvdrank's path
  std::string mpirun;          ///< path
  std::string mpirun_version;  ///< first line of its --version
  std::string python;          ///< absolute path
  std::string python_version;  ///< "3.11"; empty: any version
  /// Further users whose programs may run there, beside this user and root.  Nothing: every user's programs may run.
  std::optional<std::vector<uid_t>> software_owners{};
};

/// Looks at this host.  Takes 20 ms, at most a few seconds.
/// @param pickled  the payload is a pickle, which needs the same version of Python
Preflight look_here(const std::string& rank_program, const std::string& mpirun, const std::string& python,
                    bool pickled);

/// Text for /bin/sh, for the beginning of a script.  If a check fails, the shell writes one line to stderr and exits
/// with 4.  A program that does not answer is no failure, because it may lack a variable here.
/// @param with_folder  the script also makes a private folder, as TMPDIR, and removes it at its end
std::string preflight_script(const Preflight& here, bool with_folder = false);

/// The part of the text that checks that no other user could have put these programs there.
std::string trust_script(const std::vector<std::string>& programs, const std::vector<uid_t>& software_owners);

/// The line of a failed check, as the error to end with.  @param log  all output of ssh and the host's shell
std::optional<Error> preflight_problem(const std::string& host, const std::string& log);

}  // namespace hvd::launcher
