#include "options/configuration.h"

#include <charconv>

#include "base/text.h"
#include "options/value.h"
#include "options/variable.h"

namespace hvd::options {

Configuration::Configuration() {
  values_.reserve(table.size());
  for (const Option& row : table) {
    if (row.fallback.empty()) {
      values_.emplace_back();
      continue;
    }
    Value value = parse(row, variable_text(row, std::string(row.fallback)));
    value.given = false;
    values_.push_back(std::move(value));
  }
}

Configuration Configuration::of_environment(Component reader) {
  Configuration all;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Option& row = table[i];
    if (!row.has_variable() || !includes(row.readers, reader)) continue;
    if (const char* text = environment_value(row.variable); text && *text) all.values_[i] = parse(row, text);
  }
  return all;
}

Configuration& Configuration::set(AnyVariable variable, const std::string& text) {
  values_[variable.row()] = parse(variable.option(), text);
  return *this;
}

Configuration& Configuration::set(AnyVariable variable, double number) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof text, number, std::chars_format::fixed);
  return set(variable, std::string(text, end));
}

Configuration::Value Configuration::parse(const Option& row, const std::string& text) {
  Value value{0, variable_text(row, checked(row, text, row.variable, ValueUnit::variable)), true};
  if (row.type != ValueType::text) value.number = to_number(value.text).value_or(0);
  return value;
}

namespace {

template <class Typed>
Configuration with(Typed variable) {
  Configuration all;
  if (const char* text = value_of(variable)) all.set(variable, text);
  return all;
}

}  // namespace

bool flag_now(FlagVariable variable) { return with(variable).flag(variable); }
std::int64_t integer_now(IntegerVariable variable) { return with(variable).integer(variable); }

}  // namespace hvd::options
