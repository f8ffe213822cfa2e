/// @file source_frame.h — a line of Python code, as CPython's tracebacks and its faulthandler write it.  Pure.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace hvd::wire {

struct SourceFrame {
  std::string file;
  int line = 0;
  std::string function;  ///< "<module>": the file's top level; empty: unknown, as in a SyntaxError
};

/// The frame of a line such as `  File "train.py", line 12, in step` or `  File "train.py", line 12 in step`.
/// Nothing: the line is another one.
std::optional<SourceFrame> frame_of_line(std::string_view line);

/// True for files that the user has not written: the standard library, installed packages, hvdrun's modules.
bool is_library(std::string_view file);

}  // namespace hvd::wire
