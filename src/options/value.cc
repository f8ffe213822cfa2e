#include "options/value.h"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::options {

namespace {

constexpr double mebibyte = 1024.0 * 1024.0;

[[noreturn]] void reject(const std::string& where, const std::string& value, const std::string& wanted) {
  throw Error(Code::usage, where, formatted("'{}' is not {}", value, wanted));
}

std::string short_number(double v) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, v).ptr;
  return {text, end};
}

/// @param n     the value in the option's unit
/// @param unit  factor from the option's unit to the unit of @p value
void check_range(const Option& row, const std::string& where, const std::string& value, double n, double unit) {
  if (row.least && !(n >= *row.least))
    reject(where, value, "possible; the least is " + short_number(*row.least * unit));
  if (row.most && !(n <= *row.most)) reject(where, value, "possible; the most is " + short_number(*row.most * unit));
}

/// True if @p text is an optional "-" and any number of digits.
bool is_whole(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string choice(const Option& row, const std::string& where, const std::string& value) {
  if (row.choices.empty() || value.empty()) return value;
  const std::vector<std::string> choices = split(row.choices, ',');
  const auto same = [&](const std::string& c) { return strcasecmp(c.c_str(), value.c_str()) == 0; };
  const auto found = std::find_if(choices.begin(), choices.end(), same);
  if (found == choices.end()) reject(where, value, "one of " + join(choices, ", "));
  return *found;
}

}  // namespace

std::string checked(const Option& row, std::string value, const std::string& where, ValueUnit unit) {
  switch (row.type) {
    case ValueType::flag:
    case ValueType::negatable: {
      const auto b = to_boolean(value);
      if (!b) reject(where, value, "a boolean (write 1, 0, true, false, yes, no, on or off)");
      const bool inverted = row.conversion == Conversion::inverted && unit == ValueUnit::variable;
      return *b != inverted ? "1" : "0";
    }
    case ValueType::integer: {
      if (!is_whole(value)) reject(where, value, "a whole number");
      const bool is_negative = value[0] == '-';
      const auto n = to_integer(value);
      check_range(row, where, value, n ? static_cast<double>(*n) : is_negative ? -HUGE_VAL : HUGE_VAL, 1);
      if (!n || *n > INT_MAX || *n < INT_MIN)
        throw Error(Code::usage, where, formatted("'{}' is too {}", value, is_negative ? "small" : "large"));
      return value;
    }
    case ValueType::number: {
      const auto n = to_number(value);
      if (!n) reject(where, value, "a number");
      const bool bytes = row.conversion == Conversion::megabytes && unit == ValueUnit::variable;
      check_range(row, where, value, bytes ? *n / mebibyte : *n, bytes ? mebibyte : 1);
      return bytes ? short_number(*n / mebibyte) : value;
    }
    case ValueType::text:
      if (value.empty() && unit != ValueUnit::variable) throw Error(Code::usage, where, "is empty");
      return choice(row, where, value);
    case ValueType::pair: {
      const std::vector<std::string> two = words(value);
      if (two.size() != 2 || !is_whole(two[0]) || !is_whole(two[1])) reject(where, value, "two whole numbers");
      return value;
    }
  }
  return value;
}

std::string variable_text(const Option& row, const std::string& checked_value) {
  switch (row.conversion) {
    case Conversion::same:
      return checked_value;
    case Conversion::inverted:
      return checked_value == "1" ? "0" : "1";
    case Conversion::megabytes:
      return short_number(std::floor(to_number(checked_value).value_or(0) * mebibyte));
  }
  return checked_value;
}

}  // namespace hvd::options
