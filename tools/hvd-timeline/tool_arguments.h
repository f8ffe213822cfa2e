/// @file tool_arguments.h — hvd-timeline's commands, options and help.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace hvd::timeline {

struct ToolArguments {
  std::string command;             ///< "merge", "convert", "report", "diff" or "desync"
  std::vector<std::string> files;  ///< as many as the command takes; none is empty
  std::string output;              ///< of merge and convert, else empty
  bool json = false;
};

/// Reads the arguments.  Prints help or the version if they ask for it, and then returns nothing.
/// Throws Error{usage}.
std::optional<ToolArguments> read_arguments(int argc, char** argv);

}  // namespace hvd::timeline
