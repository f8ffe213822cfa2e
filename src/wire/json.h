/// @file json.h — reading and writing the wire's JSON: bounded, and safe for any bytes.
///
/// The user's strings (environment, arguments, output) are bytes, but JSON's strings are Unicode.  from_bytes() is for
/// strings in which each byte matters: environment, arguments, paths.  If such a string is not UTF-8, or is mostly
/// control characters, from_bytes() writes {"bytes": "<hex>"}.  The result is at most twice as long.  In text for
/// people, dump() replaces bytes that are not UTF-8 by U+FFFD.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::wire {

using Json = nlohmann::json;

inline constexpr std::size_t max_json_bytes = 4u << 20;
inline constexpr int max_json_depth = 8;

/// Throws Error{usage} that names @p what, if @p text is too long, too deep, not JSON, or not an object.
Json parse_object(const std::string& text, const char* what);
std::string dump(const Json& value);

Json from_bytes(std::string_view bytes);

/// Reads fields of one object; every failure is an Error{usage} that names "what.field".
class Fields {
 public:
  Fields(const Json& object, std::string what);

  bool has(const char* field) const { return object_.contains(field); }
  const Json& at(const char* field) const;
  std::int64_t integer(const char* field, std::int64_t lowest, std::int64_t highest) const;
  std::uint64_t size(const char* field) const;
  double number(const char* field, double lowest, double highest) const;
  bool boolean(const char* field) const;
  std::string bytes(const char* field) const;
  std::vector<std::string> list(const char* field) const;
  std::vector<int> integers(const char* field, int lowest, int highest) const;
  Fields object(const char* field) const;
  [[noreturn]] void bad(const char* field, const std::string& why) const;

 private:
  std::string one(const Json& value, const char* field) const;
  const Json& object_;
  std::string what_;
};

}  // namespace hvd::wire
