/// @file trust_checks.h — refuses payloads that other users could have chosen (base/files/trust.h).
#pragma once
#include <string>

#include "rank/launch/rank_environment.h"
#include "wire/manifest/manifest.h"

namespace hvd::rank {

/// The folder in which Python looks for a payload's modules first.
struct Imports {
  std::string folder;    ///< the script's, or the working folder; empty: no Python, or hvdrun does not ask for checks
  std::string kept_out;  ///< why imports must not look there, as a sentence; empty: they may
};

/// Throws Error{usage} if other users could have chosen the payload's Python file, or if it differs from the file that
/// hvdrun read.
/// @param cwd  absolute
Imports imports_of(const wire::RankManifest& m, const std::string& cwd);

/// Throws Error{usage} when other users could have chosen the program at @p path.  @param path  absolute
void need_trusted_program(const wire::RankManifest& m, const std::string& path);

/// Removes the working folder from PATH and similar variables, if other users may write to it.
void leave_folder_out(Environment& env, const std::string& cwd);

/// The absolute path of the program @p name; empty when it does not exist.
std::string program_path(const std::string& name, const std::string& search_path, const std::string& cwd);

}  // namespace hvd::rank
