/// @file starter_output.h — the lines of other programs' output that tell something.  Pure.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace hvd::launcher {

/// At most @p most lines of @p text: those that name a fault, and the last.  Blank lines and lines of dashes are left
/// out.
std::vector<std::string> telling_lines(const std::string& text, std::size_t most);

}  // namespace hvd::launcher
