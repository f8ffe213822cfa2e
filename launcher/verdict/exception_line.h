/// @file exception_line.h — the line of a Python traceback that names the exception.  Pure.
#pragma once
#include <string>
#include <string_view>

namespace hvd::launcher {

/// Returns the exception's line of a traceback in CPython's format, such as "ValueError: boom".  The line ends before a
/// carriage return.  Other control characters stay: Printer::say() escapes them.
///
/// The exception's line is the first line after the stack of the last traceback in @p text.  Later lines may be the
/// rest of the message, notes, or text of other writers.  If DataLoader passes on an error of a worker, the result is
/// the worker's own exception.  Text without a traceback gives its first line that is neither empty nor a heading.
std::string exception_line(std::string_view text);

}  // namespace hvd::launcher
