#include "base/json_text.h"

namespace hvd {

namespace {

/// The length in bytes of the first UTF-8 sequence of @p text. 0: the sequence is invalid by RFC 3629, as surrogates
/// and overlong forms are.  @p text must not be empty.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xc2 && first <= 0xdf   ? 2
                             : first >= 0xe0 && first <= 0xef ? 3
                             : first >= 0xf0 && first <= 0xf4 ? 4
                                                              : 0;
  if (length == 0 || text.size() < length) return 0;
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  return length;
}

}  // namespace

void append_json_string(std::string& to, std::string_view text) {
  constexpr char hex[] = "0123456789abcdef";
  to += '"';
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    if (first == '"' || first == '\\') {
      to += '\\';
      to += text[0];
    } else if (first < 0x20 || first == 0x7f) {
      to += "\\u00";
      to += hex[first >> 4];
      to += hex[first & 15];
    } else {
      const std::size_t length = utf8_length(text);
      if (length == 0)
        to += "\xef\xbf\xbd";
      else
        to.append(text.substr(0, length));
      text.remove_prefix(length == 0 ? 1 : length);
      continue;
    }
    text.remove_prefix(1);
  }
  to += '"';
}

}  // namespace hvd
