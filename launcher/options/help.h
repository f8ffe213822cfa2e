/// @file help.h — the table of options as --help, completion and JSON.
#pragma once
#include <cstddef>
#include <string>

namespace hvd::launcher {

/// @param columns  width of the terminal; help texts are broken at blanks to fit
std::string help_text(bool all, std::size_t columns);

/// Completion for bash, zsh or fish.
std::string completion(const std::string& shell);

/// The table as JSON, variables without an option included: for scripts/man-options.
std::string dump_options();

}  // namespace hvd::launcher
