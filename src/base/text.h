/// @file text.h — small functions on strings that the standard library lacks.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

/// @p s without blanks, tabs and line ends at both ends.
std::string_view trim(std::string_view s);

/// Pieces between @p separator; empty pieces are kept, so join() undoes it.
std::vector<std::string> split(std::string_view s, char separator);

/// Pieces between runs of blanks and tabs; no piece is empty.
std::vector<std::string> words(std::string_view s);

std::string join(const std::vector<std::string>& parts, std::string_view between);

/// @p s as a decimal number; nothing if @p s holds anything else, or the number does not fit.
std::optional<long long> to_integer(std::string_view s);
std::optional<double> to_number(std::string_view s);

/// 1/0, true/false, yes/no, on/off in any case; nothing for anything else.
std::optional<bool> to_boolean(std::string_view s);

/// @p s as one word of a POSIX shell: unchanged when harmless, else in single quotes.
std::string shell_quote(std::string_view s);

/// Text of other programs, made safe for a line of ours.  Control characters (but tabs), characters that break a line
/// or change its direction, and bytes that are not UTF-8 become escapes: "\n", "\x1b", "\u0085".  Letters of all
/// scripts stay.
std::string printable(std::string_view s);

/// The same for a text of several lines: newlines stay.
std::string printable_lines(std::string_view s);

/// "1 rank", "2 ranks".
std::string count_of(long long n, std::string_view singular);

/// "512 MiB", "1.5 GiB".
std::string human_bytes(std::int64_t bytes);

/// Numbers as short ranges: {0,1,2,5} → "0-2,5".
std::string ranges(const std::vector<int>& sorted);

}  // namespace hvd
