/// @file text.h — small functions on strings that the standard library lacks.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

/// Without blanks, tabs and line ends at both ends.
std::string_view trim(std::string_view s);

/// Pieces between @p separator; empty pieces are kept, so join() undoes it.
std::vector<std::string> split(std::string_view s, char separator);

/// Pieces between runs of blanks and tabs; never an empty one.
std::vector<std::string> words(std::string_view s);

std::string join(const std::vector<std::string>& parts, std::string_view between);

/// The whole of @p s as a number in decimal; nothing if any other character is there or it does not fit.
std::optional<long long> to_integer(std::string_view s);
std::optional<double> to_number(std::string_view s);

/// 1/0, true/false, yes/no, on/off in any case; nothing for anything else.
std::optional<bool> to_boolean(std::string_view s);

/// @p s as one word of a POSIX shell: unchanged when harmless, else in single quotes.
std::string shell_quote(std::string_view s);

/// What others wrote, as part of a line of ours: control characters (tabs stay), characters that turn or break a line,
/// and bytes that are no UTF-8 become "\n", "\x1b", "\u0085"; letters of all scripts stay.
std::string printable(std::string_view s);

/// The same of a text of several lines, whose newlines stay.
std::string printable_lines(std::string_view s);

/// "1 rank", "2 ranks".
std::string count_of(long long n, std::string_view singular);

/// Numbers as short ranges: {0,1,2,5} → "0-2,5".
std::string ranges(const std::vector<int>& sorted);

}  // namespace hvd
