/// @file explain.h — `hvdrun explain FILE`: a verdict's file, for people.
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

/// The text for a verdict.  Throws Error{usage} with where = @p name if @p json is no verdict of verdict_version.
std::string explained(const std::string& json, const std::string& name);

/// @param words  the arguments after `explain`.  Returns the exit code.
int explain(const std::vector<std::string>& words);

}  // namespace hvd::launcher
