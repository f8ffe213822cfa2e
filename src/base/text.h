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

/// The pieces of @p s between separators.  Empty pieces are kept: join() with the separator restores @p s.
std::vector<std::string> split(std::string_view s, char separator);

/// The pieces of @p s between blanks, tabs and line ends.  No piece is empty.
std::vector<std::string> words(std::string_view s);

std::string join(const std::vector<std::string>& parts, std::string_view between);

/// @p s as a decimal number.  Nothing if @p s contains other characters, or the number is too large for the type.
std::optional<long long> to_integer(std::string_view s);
std::optional<double> to_number(std::string_view s);

/// 1/0, true/false, yes/no, on/off in upper or lower case; nothing for any other text.
std::optional<bool> to_boolean(std::string_view s);

/// @p s as one word of a POSIX shell: in single quotes, unless all characters are harmless.
std::string shell_quote(std::string_view s);

/// Makes another program's text safe for one line of our output.  Escapes such as "\n", "\x1b" or "\u0085" replace
/// unsafe characters.  Unsafe are control characters except tabs, characters that break a line or change its direction,
/// and bytes that are not UTF-8. Letters of all scripts stay.
std::string printable(std::string_view s);

/// Like printable(), but keeps newlines.
std::string printable_lines(std::string_view s);

/// @p s, or its beginning and "…": at most @p most_bytes, without a torn character.  @param most_bytes  at least 3
std::string shortened(std::string_view s, std::size_t most_bytes);

/// "1 rank", "2 ranks".
std::string count_of(long long n, std::string_view singular);

/// "512 MiB", "1.5 GiB".
std::string human_bytes(std::int64_t bytes);

/// Ascending numbers as ranges: {0,1,2,5} → "0-2,5".
std::string ranges(const std::vector<int>& sorted);

/// "rank 1", "ranks 0-2,5".
std::string ranks_text(const std::vector<int>& sorted);
/// "rank 1 is in t.py:8", "ranks 0-2 are in t.py:8".  @param predicate  the form for one rank: "is in t.py:8"
std::string ranks_text(const std::vector<int>& sorted, const std::string& predicate);
/// Returns @p predicate in the plural, for several ranks: "is …" → "are …", "waits" → "wait", "…; its last …" → "…;
/// their last …".
std::string plural(const std::string& predicate);

}  // namespace hvd
