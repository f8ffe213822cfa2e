#include "launcher/verdict/exception_line.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view header = "Traceback (most recent call last):";

/// Removes the bar in front of a line of an exception group: "  | ValueError: a" gives "ValueError: a".
std::string_view without_bar(std::string_view line) {
  const std::size_t bar = line.find_first_not_of(' ');
  if (bar == line.npos || line[bar] != '|') return line;
  return line.substr(std::min(bar + 2, line.size()));
}

bool is_header(std::string_view line) {
  const std::string_view text = trim(line);
  return text == header || text == "Original Traceback (most recent call last):" ||
         text == "+ Exception Group Traceback (most recent call last):";
}

/// The part of @p line before the first carriage return.  A terminal prints the rest over that part.
std::string first_part(std::string_view line) {
  line = trim(line);
  return std::string(trim(line.substr(0, line.find('\r'))));
}

/// The exception's line of the traceback whose header is line @p at.  Empty: the text ends before that line.
std::string line_after(const std::vector<std::string>& lines, std::size_t at) {
  for (std::size_t i = at + 1; i < lines.size(); ++i) {
    const std::string_view line = without_bar(lines[i]);
    if (!trim(line).empty() && line.front() != ' ') return first_part(line);
  }
  return {};
}

}  // namespace

std::string exception_line(std::string_view text) {
  const std::vector<std::string> lines = split(text, '\n');
  for (std::size_t at = lines.size(); at-- > 0;) {
    if (!is_header(lines[at])) continue;
    if (std::string found = line_after(lines, at); !found.empty()) return found;
  }
  for (const std::string& line : lines)
    if (!trim(line).empty() && !line.starts_with("Traceback")) return first_part(line);
  return {};
}

}  // namespace hvd::launcher
