#include "rank/streams/output.h"

#include <algorithm>
#include <utility>

namespace hvd::rank {
namespace {

constexpr std::string_view header = "Traceback (most recent call last):";
constexpr std::string_view group_header = "  + Exception Group Traceback (most recent call last):";
/// The lines between the tracebacks of a chain, as CPython's traceback module prints them.
constexpr std::string_view chain_words[] = {
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
};

constexpr std::size_t most_line_bytes = 2000;  ///< only the first bytes of a line are examined

constexpr std::string_view mark_begin = "[rank", mark_end = "]: ";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// @p line without the marks "[rank3]: ".  Each init_process_group() of torch makes an excepthook that adds one.
std::string_view without_mark(std::string_view line) {
  while (line.starts_with(mark_begin)) {
    std::size_t end = mark_begin.size();
    while (end < line.size() && is_digit(line[end])) ++end;
    if (end == mark_begin.size() || !line.substr(end).starts_with(mark_end)) break;
    line.remove_prefix(end + mark_end.size());
  }
  return line;
}

/// True if @p line is the beginning of a mark, or a whole mark.
bool may_become_mark(std::string_view line) {
  if (line.size() <= mark_begin.size()) return mark_begin.starts_with(line);
  if (!line.starts_with(mark_begin)) return false;
  const std::size_t end = std::min(line.find_first_not_of("0123456789", mark_begin.size()), line.size());
  return mark_end.starts_with(line.substr(end));
}

bool is_header(std::string_view line) {
  const std::string_view text = without_mark(line);
  return text == header || text == group_header;
}

/// True if @p line may become a header with more bytes.  Such a line is held.
bool may_become_header(std::string_view line) {
  if (line.empty()) return false;
  const std::string_view text = without_mark(line);
  return may_become_mark(line) || may_become_mark(text) || header.starts_with(text) || group_header.starts_with(text);
}

/// True where @p line may explain the end.  Blank and indented lines, progress bars, and warnings of Python and of
/// torch's log do not.
bool tells_why(std::string_view line) {
  const bool is_log = line.starts_with("[W") || line.starts_with("[I") || line.starts_with("WARNING");
  return !line.empty() && line.front() != ' ' && line.front() != '\t' && line.find('\r') == line.npos && !is_log &&
         line.find("Warning: ") == line.npos;
}

/// @p text with the mark of each line removed.
std::string without_marks(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline == text.npos ? text.npos : newline + 1);
    text.remove_prefix(line.size());
    out += without_mark(line);
  }
  return out;
}

}  // namespace

void Tail::add(std::string_view line) {
  if (lines_.size() == most_lines) lines_.pop_front();
  lines_.emplace_back(line.substr(0, most_line_bytes));
}

std::string Output::release() {
  if (in_traceback_) shown_ = without_marks(held_);
  in_traceback_ = chained_ = goes_on_ = false;
  return std::exchange(held_, {});
}

/// Called at the end of line_.  Notes whether the line continues a chain of tracebacks, or begins a traceback that the
/// process survives.
void Output::end_of_line(Clock::time_point now) {
  if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  tail_.add(line_);
  note_line(now);
  const std::string_view text = without_mark(line_);
  chained_ = std::find(std::begin(chain_words), std::end(chain_words), text) != std::end(chain_words) ||
             (chained_ && text.empty());
  survived_ = line_.starts_with("Exception in thread ") || line_.starts_with("Exception ignored ");
  line_.clear();
}

void Output::note_line(Clock::time_point now) {
  const std::string_view text = without_mark(line_);
  if (!tells_why(text)) return;
  last_line_ = text.substr(0, Tail::most_line_bytes);
  last_line_at_ = now;
}

std::string Output::take(std::string_view bytes, Clock::time_point now) {
  std::string out;
  taken_at_ = now;
  goes_on_ = goes_on_ || (in_traceback_ && now - since_ > std::chrono::milliseconds(500));
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, newline == bytes.npos ? bytes.npos : newline + 1);
    bytes.remove_prefix(piece.size());
    const bool whole = piece.back() == '\n';
    const std::string_view text = whole ? piece.substr(0, piece.size() - 1) : piece;
    if (line_.size() < most_line_bytes) line_.append(text.substr(0, most_line_bytes - line_.size()));

    const bool begins = hold_ && !survived_;  // the traceback of a dead thread is passed on at once
    if (begins && whole && is_header(line_)) {
      // If a new traceback does not continue the chain, the traceback before it becomes ordinary output.
      if (in_traceback_ && !chained_) {
        const std::size_t start = held_.size() - (line_.size() - text.size());
        const std::string begun = held_.substr(start);
        held_.resize(start);
        out += release();
        held_ = begun;
      }
      since_ = now;
      goes_on_ = false;
      in_traceback_ = true;
      held_ += piece;
    } else if (in_traceback_ || (begins && !whole && may_become_header(line_))) {
      if (held_.empty()) since_ = now;
      held_ += piece;
    } else {
      out += release();
      out += piece;
    }
    if (whole) end_of_line(now);
    if (held_.size() > most_held_bytes) out += release();
  }
  return out;
}

std::string Output::expire(Clock::time_point now) { return now < deadline() ? std::string() : release(); }

Clock::time_point Output::deadline() const {
  if (held_.empty()) return Clock::time_point::max();
  if (!in_traceback_) return since_ + std::chrono::milliseconds(100);
  return since_ + (goes_on_ ? hold_when_it_goes_on : longest_hold);
}

std::string Output::finish(std::string* rest) {
  if (!line_.empty()) {
    tail_.add(line_);
    note_line(taken_at_);
  }
  line_.clear();
  if (in_traceback_) return without_marks(std::exchange(held_, {}));
  *rest = release();
  return {};
}

}  // namespace hvd::rank
