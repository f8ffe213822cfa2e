/// @file preflight.h — the few things that are looked at on every remote host each time a job starts.
///
/// They travel with the shell text that starts the daemon there: no connection of their own, and all hosts at once.
/// hvdrun doctor asks far more.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace hvd::launcher {

/// What this host has, and every other is to have.  An empty one is not asked for.
struct Preflight {
  std::string rank_program;    ///< hvdrank's path
  std::string mpirun;          ///< path
  std::string mpirun_version;  ///< first line of its --version
  std::string python;          ///< absolute path
  std::string python_version;  ///< "3.11"; only where another would not do
  /// Whose programs are run there, besides this user's and root's; none: anybody's.
  std::optional<std::vector<uid_t>> software_owners{};
};

/// Looks at this host; at most a few seconds, as a rule 20 ms.
/// @param pickled  the payload is bound to the version of Python
Preflight look_here(const std::string& rank_program, const std::string& mpirun, const std::string& python,
                    bool pickled);

/// Text for /bin/sh, to go before all else.  What is wrong goes to stderr as one line, and the shell ends with 4.
/// Fails only for what cannot be right: a program that does not answer is not blamed, it may lack a variable here.
std::string preflight_script(const Preflight& here);

/// The part of it that looks whether others could have put programs there.
std::string trust_script(const std::vector<std::string>& programs, const std::vector<uid_t>& software_owners);

/// What that said, if it did, as the error to end with.  @param log  what ssh and the host's shell printed
std::optional<Error> preflight_problem(const std::string& host, const std::string& log);

}  // namespace hvd::launcher
