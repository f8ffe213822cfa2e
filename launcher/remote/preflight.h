/// @file preflight.h — the checks that each remote host makes every time a job starts.
///
/// The checks are shell text in front of the text that starts the host's daemon: they need no connection of their own,
/// and all hosts make them at once.  hvdrun doctor checks far more.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace hvd::launcher {

/// What this host has, and each remote host must have.  An empty field is not checked.
struct Preflight {
  std::string rank_program;    ///< hvdrank's path
  std::string mpirun;          ///< path
  std::string mpirun_version;  ///< first line of its --version
  std::string python;          ///< absolute path
  std::string python_version;  ///< "3.11"; empty where any version will do
  /// The users whose programs may be run there, besides this user and root; nothing: everybody's may.
  std::optional<std::vector<uid_t>> software_owners{};
};

/// Looks at this host; at most a few seconds, as a rule 20 ms.
/// @param pickled  the payload is bound to the version of Python
Preflight look_here(const std::string& rank_program, const std::string& mpirun, const std::string& python,
                    bool pickled);

/// Text for /bin/sh, to stand in front.  When a check fails the shell writes one line to stderr and exits with 4.  A
/// check fails only when something is certainly wrong: a program that does not answer may just lack a variable here.
std::string preflight_script(const Preflight& here);

/// The part of the text that checks whether other users could have put these programs there.
std::string trust_script(const std::vector<std::string>& programs, const std::vector<uid_t>& software_owners);

/// The line of a failed check in @p log (all that ssh and the host's shell printed), as the error to end with.
std::optional<Error> preflight_problem(const std::string& host, const std::string& log);

}  // namespace hvd::launcher
