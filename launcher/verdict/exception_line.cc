#include "launcher/verdict/exception_line.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view header = "Traceback (most recent call last):";

/// A line of an exception group without the bar in front: "  | ValueError: a".
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

/// The part of the line before its first carriage return.  On a terminal, the text after the return overwrites it.
std::string first_part(std::string_view line) {
  line = trim(line);
  return std::string(trim(line.substr(0, line.find('\r'))));
}

/// True if the program survived the traceback with header line @p at: Python ignored it, or a thread raised it.
bool was_survived(const std::vector<std::string>& lines, std::size_t at) {
  return at > 0 &&
         (lines[at - 1].starts_with("Exception ignored ") || lines[at - 1].starts_with("Exception in thread "));
}

/// The column of the plus sign in a line that begins a member of an exception group.  Such lines are "  +-+---- 1 ----"
/// and "    +---- 2 ----". npos: another line.
std::size_t member_column(std::string_view line) {
  const std::size_t plus = line.rfind("+----------------");
  if (plus == line.npos || line.find_first_not_of(" +-") == line.npos) return line.npos;  // a group's last line
  return line.find_first_not_of(" +-", 0) > plus ? plus : line.npos;
}

/// Whether another exception of a chain follows this line, and is the one that its program raised.
bool is_before_exception(std::string_view line) {
  return trim(line).ends_with("Traceback (most recent call last):") ||
         line.starts_with("The above exception was the direct cause of the following exception:") ||
         line.starts_with("During handling of the above exception, another exception occurred:");
}

/// The exception line of the group's member that begins after line @p at.  @p column: of the member's bar.  In a chain
/// of exceptions, the last exception counts.
std::string member_line(const std::vector<std::string>& lines, std::size_t at, std::size_t column) {
  std::string found;
  bool expected = true;
  for (std::size_t i = at + 1; i < lines.size(); ++i) {
    const std::size_t mark = lines[i].find_first_not_of(' ');
    if (mark == std::string::npos || (lines[i][mark] != '|' && lines[i][mark] != '+') || mark < column) break;
    if (mark == column && lines[i][mark] == '+' && member_column(lines[i]) == column) break;  // the next member
    if (mark != column || lines[i][mark] != '|') continue;                                    // a group in this member
    const std::string_view line = without_bar(lines[i]);
    if (trim(line).empty() || line.front() == ' ') continue;
    const bool is_before = is_before_exception(line);
    if (expected && !is_before) found = first_part(line);
    expected = is_before;
  }
  return found;
}

/// The exception lines of a group's members, joined by "; ".  @p at: the group's own line.  Empty: the line belongs to
/// no group.
std::string members_after(const std::vector<std::string>& lines, std::size_t at) {
  std::vector<std::string> found;
  std::size_t level = std::string::npos;
  for (std::size_t i = at + 1; i < lines.size(); ++i) {
    const std::size_t column = member_column(lines[i]);
    if (column == std::string::npos) continue;
    if (level == std::string::npos) level = column;
    if (column < level) break;  // a member of an outer group
    if (column > level) continue;
    if (std::string line = member_line(lines, i, column); !line.empty()) found.push_back(std::move(line));
  }
  return join(found, "; ");
}

/// The exception's line of the traceback with header line @p at.  Empty: the text ends before that line.
std::string line_after(const std::vector<std::string>& lines, std::size_t at) {
  const bool is_group = trim(lines[at]).starts_with("+ ");
  for (std::size_t i = at + 1; i < lines.size(); ++i) {
    const std::string_view line = without_bar(lines[i]);
    if (trim(line).empty() || line.front() == ' ') continue;
    const std::string members = is_group ? members_after(lines, i) : "";
    return first_part(line) + (members.empty() ? "" : ": " + members);
  }
  return {};
}

/// The number of the header line of the traceback that ended the program.
std::optional<std::size_t> traceback_in(const std::vector<std::string>& lines) {
  for (const bool survived : {false, true})
    for (std::size_t at = lines.size(); at-- > 0;)
      if (is_header(lines[at]) && was_survived(lines, at) == survived && !line_after(lines, at).empty()) return at;
  return {};
}

}  // namespace

std::optional<wire::SourceFrame> exception_frame(std::string_view text) {
  const std::vector<std::string> lines = split(text, '\n');
  std::optional<wire::SourceFrame> innermost, own;
  for (std::size_t i = traceback_in(lines).value_or(lines.size()) + 1; i < lines.size(); ++i) {
    const std::string_view line = without_bar(lines[i]);
    if (!trim(line).empty() && line.front() != ' ') break;
    const auto frame = wire::frame_of_line(line);
    if (!frame) continue;
    innermost = frame;
    if (!wire::is_library(frame->file)) own = frame;
  }
  return own ? own : innermost;
}

std::string exception_line(std::string_view text) {
  const std::vector<std::string> lines = split(text, '\n');
  if (const auto at = traceback_in(lines)) return line_after(lines, *at);
  for (const std::string& line : lines)
    if (!trim(line).empty() && !line.starts_with("Traceback")) return first_part(line);
  return {};
}

}  // namespace hvd::launcher
