#include "json.h"

#include "base/error.h"

namespace hvd::wire {
namespace {

/// Bytes of @p s as a JSON string: a control character is six.
std::size_t escaped_bytes(std::string_view s) {
  std::size_t bytes = s.size();
  for (const unsigned char c : s) bytes += c == '"' || c == '\\' ? 1 : c >= 32 ? 0 : 5;
  return bytes;
}

/// True when @p s is well-formed UTF-8 (no surrogates, no overlong forms).
bool is_utf8(std::string_view s) {
  const auto* p = reinterpret_cast<const unsigned char*>(s.data());
  const auto* end = p + s.size();
  while (p < end) {
    const unsigned char c = *p++;
    if (c < 0x80) continue;
    const int more = c >= 0xc2 && c <= 0xdf ? 1 : (c & 0xf0) == 0xe0 ? 2 : c >= 0xf0 && c <= 0xf4 ? 3 : 0;
    if (more == 0 || end - p < more) return false;
    const unsigned char d = p[0];
    if ((c == 0xe0 && d < 0xa0) || (c == 0xed && d > 0x9f) || (c == 0xf0 && d < 0x90) || (c == 0xf4 && d > 0x8f))
      return false;
    for (int i = 0; i < more; ++i)
      if ((*p++ & 0xc0) != 0x80) return false;
  }
  return true;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Json parse_object(const std::string& text, const char* what) {
  if (text.size() > max_json_bytes) throw Error(Code::usage, what, "longer than 4 MiB");
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > max_json_depth) throw Error(Code::usage, what, "nested too deeply");
    return true;
  };
  Json value;
  try {
    value = Json::parse(text, shallow);
  } catch (const Json::exception& e) { throw Error(Code::usage, what, "is not JSON"); }
  if (!value.is_object()) throw Error(Code::usage, what, "is not a JSON object");
  return value;
}

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json from_bytes(std::string_view bytes) {
  if (is_utf8(bytes) && escaped_bytes(bytes) <= 2 * bytes.size()) return std::string(bytes);
  static constexpr char digits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const unsigned char c : bytes) {
    hex += digits[c >> 4];
    hex += digits[c & 15];
  }
  return Json{{"bytes", hex}};
}

Fields::Fields(const Json& object, std::string what) : object_(object), what_(std::move(what)) {
  if (!object_.is_object()) throw Error(Code::usage, what_, "is not a JSON object");
}

void Fields::bad(const char* field, const std::string& why) const {
  throw Error(Code::usage, what_ + "." + field, why);
}

const Json& Fields::at(const char* field) const {
  const auto it = object_.find(field);
  if (it == object_.end()) bad(field, "is missing");
  return *it;
}

std::int64_t Fields::integer(const char* field, std::int64_t lowest, std::int64_t highest) const {
  const Json& v = at(field);
  if (!v.is_number_integer()) bad(field, "is not an integer");
  if (v.is_number_unsigned() && v.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    bad(field, "is too large");
  const auto n = v.get<std::int64_t>();
  if (n < lowest || n > highest) bad(field, "is out of range");
  return n;
}

std::uint64_t Fields::size(const char* field) const {
  const Json& v = at(field);
  if (!v.is_number_unsigned()) bad(field, "is not a size");
  return v.get<std::uint64_t>();
}

double Fields::number(const char* field, double lowest, double highest) const {
  const Json& v = at(field);
  if (!v.is_number()) bad(field, "is not a number");
  const double n = v.get<double>();
  if (!(n >= lowest && n <= highest)) bad(field, "is out of range");
  return n;
}

bool Fields::boolean(const char* field) const {
  const Json& v = at(field);
  if (!v.is_boolean()) bad(field, "is neither true nor false");
  return v.get<bool>();
}

std::string Fields::one(const Json& value, const char* field) const {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object() || value.size() != 1 || !value.contains("bytes") || !value["bytes"].is_string())
    bad(field, "is not a string");
  const std::string hex = value["bytes"].get<std::string>();
  std::string out;
  out.reserve(hex.size() / 2);
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    const int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
    if (high < 0 || low < 0) bad(field, "is not hexadecimal");
    out += static_cast<char>(high << 4 | low);
  }
  if (hex.size() % 2) bad(field, "is not hexadecimal");
  return out;
}

std::string Fields::bytes(const char* field) const { return one(at(field), field); }

std::vector<std::string> Fields::list(const char* field) const {
  const Json& v = at(field);
  if (!v.is_array()) bad(field, "is not a list");
  std::vector<std::string> out;
  out.reserve(v.size());
  for (const Json& item : v) out.push_back(one(item, field));
  return out;
}

std::vector<int> Fields::integers(const char* field, int lowest, int highest) const {
  const Json& v = at(field);
  if (!v.is_array()) bad(field, "is not a list");
  std::vector<int> out;
  out.reserve(v.size());
  for (const Json& item : v) {
    if (!item.is_number_integer() || item < lowest || item > highest) bad(field, "holds something out of range");
    out.push_back(item.get<int>());
  }
  return out;
}

Fields Fields::object(const char* field) const { return {at(field), what_ + "." + field}; }

}  // namespace hvd::wire
