#include "base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/format.h"

namespace hvd {

namespace {
constexpr std::string_view blanks = " \t\r\n";
}

std::string_view trim(std::string_view s) {
  const auto first = s.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string> split(std::string_view s, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const auto end = s.find(separator, begin);
    parts.emplace_back(s.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::vector<std::string> words(std::string_view s) {
  std::vector<std::string> parts;
  for (std::size_t i = s.find_first_not_of(blanks); i != std::string_view::npos;) {
    const auto end = s.find_first_of(blanks, i);
    parts.emplace_back(s.substr(i, end == std::string_view::npos ? end : end - i));
    i = end == std::string_view::npos ? end : s.find_first_not_of(blanks, end);
  }
  return parts;
}

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i) out += between;
    out += parts[i];
  }
  return out;
}

std::optional<long long> to_integer(std::string_view s) {
  long long value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (s.empty() || error != std::errc{} || end != s.data() + s.size()) return std::nullopt;
  return value;
}

std::optional<double> to_number(std::string_view s) {
  double value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (s.empty() || error != std::errc{} || end != s.data() + s.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<bool> to_boolean(std::string_view s) {
  std::string lower(s);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (lower == "1" || lower == "true" || lower == "yes" || lower == "on") return true;
  if (lower == "0" || lower == "false" || lower == "no" || lower == "off") return false;
  return std::nullopt;
}

std::string shell_quote(std::string_view s) {
  constexpr std::string_view harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!s.empty() && s.find_first_not_of(harmless) == std::string_view::npos) return std::string(s);
  std::string out = "'";
  for (const char c : s) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

namespace {

struct Character {
  std::size_t bytes = 1;
  std::optional<std::uint32_t> code;  ///< nothing: the bytes are not UTF-8
};

/// @param s  not empty
Character first_character(std::string_view s) {
  const auto byte = [s](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char c = byte(0);
  if (c < 0x80) return {1, c};
  const std::size_t bytes = c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 && c < 0xe0 ? 2 : 0;
  if (bytes == 0 || s.size() < bytes) return {};
  std::uint32_t code = c & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {bytes, code};
}

bool harmless(std::uint32_t c) {
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return c == '\t';
  // Marks that change the direction of writing, and line separators.
  return !((c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069));
}

}  // namespace

std::string printable(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  while (!s.empty()) {
    const Character c = first_character(s);
    char escaped[16];
    if (c.code && harmless(*c.code))
      out += s.substr(0, c.bytes);
    else if (c.code == '\n' || c.code == '\r')
      out += c.code == '\n' ? "\\n" : "\\r";
    else if (!c.code || *c.code < 0x80)
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(s[0])), out += escaped;
    else
      std::snprintf(escaped, sizeof escaped, "\\u%04x", *c.code), out += escaped;
    s.remove_prefix(c.bytes);
  }
  return out;
}

std::string printable_lines(std::string_view s) {
  std::vector<std::string> lines = split(s, '\n');
  for (std::string& line : lines) line = printable(line);
  return join(lines, "\n");
}

std::string shortened(std::string_view s, std::size_t most_bytes) {
  constexpr std::string_view dots = "…";
  if (s.size() <= most_bytes) return std::string(s);
  std::size_t end = most_bytes - dots.size();
  for (int i = 0; i < 3 && end > 0 && (static_cast<unsigned char>(s[end]) & 0xc0) == 0x80; ++i) --end;
  return std::string(s.substr(0, end)).append(dots);
}

std::string count_of(long long n, std::string_view singular) {
  return formatted("{} {}{}", n, singular, n == 1 ? "" : "s");
}

std::string human_bytes(std::int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? formatted("{:.0f} MiB", mib) : formatted("{:.1f} GiB", mib / 1024);
}

std::string ranges(const std::vector<int>& sorted) {
  std::string out;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    if (!out.empty()) out += ',';
    out += std::to_string(sorted[i]);
    if (last > i) out += formatted("-{}", sorted[last]);
    i = last + 1;
  }
  return out;
}

std::string ranks_text(const std::vector<int>& sorted) {
  return (sorted.size() == 1 ? "rank " : "ranks ") + ranges(sorted);
}

std::string ranks_text(const std::vector<int>& sorted, const std::string& predicate) {
  return ranks_text(sorted) + " " + (sorted.size() == 1 ? predicate : plural(predicate));
}

std::string plural(const std::string& predicate) {
  const std::size_t end = std::min(predicate.find(' '), predicate.size());
  const std::string verb = predicate.substr(0, end);
  std::string rest = predicate.substr(end);
  if (const std::size_t its = rest.find("; its "); its != std::string::npos) rest.replace(its, 6, "; their ");
  if (verb == "is") return "are" + rest;
  if (verb == "has") return "have" + rest;
  if (verb == "does") return "do" + rest;
  return (verb.ends_with('s') ? verb.substr(0, verb.size() - 1) : verb) + rest;
}

}  // namespace hvd
