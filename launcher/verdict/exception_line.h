/// @file exception_line.h — the line of a Python traceback that names the exception.  Pure.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "wire/shared/source_frame.h"

namespace hvd::launcher {

/// "ValueError: boom" of a traceback as CPython prints it, up to a carriage return.  Other control characters stay:
/// Printer::say() escapes them.
///
/// The exception's line is the first line after the stack of the last traceback in @p text.  Lines of a longer message,
/// notes and text of other writers follow it.  Tracebacks of ignored exceptions (`__del__`) and of threads count only
/// where there is no other.  An exception group also gives the lines of its members.  An error that DataLoader carries
/// from a worker gives the worker's own exception.  Text without a traceback gives its first line that is neither empty
/// nor a heading.
std::string exception_line(std::string_view text);

/// The line of the user's own code that raised the exception of exception_line(), else the innermost line.  Nothing:
/// the text has no such line.
std::optional<wire::SourceFrame> exception_frame(std::string_view text);

}  // namespace hvd::launcher
