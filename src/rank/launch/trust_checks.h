/// @file trust_checks.h — looks at what a rank would run on this host, before it is run: base/trust.h.
#pragma once
#include <string>

#include "rank/launch/rank_environment.h"
#include "wire/manifest.h"

namespace hvd::rank {

/// Where Python looks for a payload's modules before all else.
struct Imports {
  std::string folder;    ///< the script's, or the working folder; empty: it is no Python, or hvdrun does not ask
  std::string kept_out;  ///< why imports must not look there, as a sentence; empty: they may
};

/// Throws Error{usage} when others could have chosen the payload's Python file, or it is not the one that hvdrun read.
/// @param cwd  absolute
Imports imports_of(const wire::RankManifest& m, const std::string& cwd);

/// @param path  absolute.  Throws Error{usage} when others could have chosen that program.
void need_trusted_program(const wire::RankManifest& m, const std::string& path);

/// Where others may write to the working folder, PATH and its like must not lead there.
void leave_folder_out(Environment& env, const std::string& cwd);

/// @p name as the kernel will look for it: absolute; empty when it is not there.
std::string program_path(const std::string& name, const std::string& search_path, const std::string& cwd);

}  // namespace hvd::rank
