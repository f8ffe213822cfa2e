/// @file json_text.h — appends pieces of JSON to a string.
///
/// Only two writers use these functions.  Timelines write each event of each rank.  libhvd would be 155 KiB (7 %)
/// larger with nlohmann::json.  All other code builds a value with nlohmann::json and dumps it.
#pragma once
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace hvd {

/// Appends @p text as a JSON string with its quotes.  Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& to, std::string_view text);

inline void append_number(std::string& to, std::int64_t value) {
  char digits[20];
  to.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

/// Appends nanoseconds as Chrome's microseconds: 1234567 → 1234.567.
inline void append_us(std::string& to, std::int64_t ns) {
  char digits[24];
  char* at = digits;
  if (ns < 0) *at++ = '-';
  const std::uint64_t magnitude = ns < 0 ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  at = std::to_chars(at, digits + sizeof digits, magnitude / 1000).ptr;
  const auto rest = static_cast<unsigned>(magnitude % 1000);
  *at++ = '.';
  *at++ = static_cast<char>('0' + rest / 100);
  *at++ = static_cast<char>('0' + rest / 10 % 10);
  *at++ = static_cast<char>('0' + rest % 10);
  to.append(digits, at);
}

}  // namespace hvd
