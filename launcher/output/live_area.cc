#include "launcher/output/live_area.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "launcher/output/character_width.h"

namespace hvd::launcher {

namespace {

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}  // the byte continues a UTF-8 character

/// Bytes of the escape sequence at the beginning of @p text: CSI … final byte, or two.
std::size_t escape_length(std::string_view text) {
  if (text.size() < 2 || text[1] != '[') return std::min<std::size_t>(2, text.size());
  std::size_t i = 2;
  while (i < text.size() && (text[i] < '@' || text[i] > '~')) ++i;
  return std::min(i + 1, text.size());
}

/// Bytes of the character at the beginning of @p text.
std::size_t character_length(std::string_view text) {
  std::size_t bytes = 1;
  while (bytes < text.size() && continues(text[bytes])) ++bytes;
  return bytes;
}

std::size_t width(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t bytes; !text.empty(); text.remove_prefix(bytes))
    columns += character_width(text.substr(0, bytes = character_length(text)));
  return columns;
}

}  // namespace

std::string row_text(std::string_view text, std::size_t columns) {
  std::string row;
  std::size_t used = 0;
  while (!text.empty()) {
    if (text[0] == '\x1b') {
      text.remove_prefix(escape_length(text));
      continue;
    }
    const std::size_t bytes = character_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool c1 = first == 0xc2 && bytes == 2 && static_cast<unsigned char>(text[1]) < 0xa0;
    if (first >= 0x20 && first != 0x7f && !c1) {
      used += character_width(text.substr(0, bytes));
      if (used > columns) break;
      row += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return row;
}

void LiveArea::set(int rank, const std::string& tag, std::string_view text) {
  if (trim(text).empty()) {
    changed_ = rows_.erase(rank) > 0 || changed_;
    return;
  }
  LiveRow& row = rows_[rank];
  if (row.text == text) return;
  row = {tag, std::string(text), false};
  changed_ = true;
}

void LiveArea::line_was_typed() {
  if (const auto reader = rows_.find(reader_); reader != rows_.end()) reader->second.answered = true;
  drawn_ = 0;
  changed_ = true;
}

void LiveArea::erase() {
  if (drawn_ == 0) return;
  put_("\r" + (drawn_ > 1 ? "\x1b[" + std::to_string(drawn_ - 1) + "A" : "") + "\x1b[J");
  drawn_ = 0;
  changed_ = true;
}

void LiveArea::draw(Clock::time_point now) {
  if (!changed_ || now - last_ < interval) return;
  last_ = now;
  erase();
  changed_ = false;
  const std::string text = picture();
  if (text.empty()) return;
  put_(text);
  drawn_ = 1 + static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::string LiveArea::picture() const {
  const TerminalSize size = size_();
  std::vector<const LiveRow*> shown;
  for (const auto& [rank, row] : rows_)
    if (rank != reader_ && !row.answered) shown.push_back(&row);
  const std::size_t most = std::max<std::size_t>(size.rows / 2, 2);
  std::size_t more = 0;
  if (shown.size() > most) more = shown.size() - (most - 1), shown.resize(most - 1);
  std::vector<std::string> lines;
  const auto add = [&](const LiveRow& row) {
    const std::size_t tag = width(row_text(row.tag, SIZE_MAX));
    lines.push_back(row.tag + row_text(row.text, size.columns > tag + 1 ? size.columns - tag - 1 : 1));
  };
  for (const LiveRow* row : shown) add(*row);
  if (more) lines.push_back("… and " + count_of(static_cast<long long>(more), "more rank"));
  if (const auto reader = rows_.find(reader_); reader != rows_.end() && !reader->second.answered) add(reader->second);
  return join(lines, "\n");
}

}  // namespace hvd::launcher
