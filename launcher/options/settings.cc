#include "launcher/options/settings.h"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "base/trust.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_config_bytes = 1u << 20;

[[noreturn]] void reject(const Setting& s, const std::string& wanted) {
  throw Error(Code::usage, s.where, "'" + s.value + "' is not " + wanted);
}

std::string short_number(double v) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, v).ptr;
  return {text, end};
}

/// Numbers: within what the row allows.
void check_range(const Option& row, const Setting& s, double n) {
  if (row.least && n < *row.least) reject(s, "possible; the least is " + short_number(*row.least));
  if (row.most && n > *row.most) reject(s, "possible; the most is " + short_number(*row.most));
}

/// A text with choices becomes the one that it names, in any case.
void check_choice(const Option& row, Setting& s) {
  if (row.choices.empty() || s.value.empty()) return;
  const std::vector<std::string> choices = split(row.choices, ',');
  const auto same = [&](const std::string& choice) { return strcasecmp(choice.c_str(), s.value.c_str()) == 0; };
  const auto found = std::find_if(choices.begin(), choices.end(), same);
  if (found == choices.end()) reject(s, "one of " + join(choices, ", "));
  s.value = *found;
}

/// Brings a boolean to "1" or "0" and checks numbers; the variable's own unit (bytes, inverted) becomes the flag's.
void check(const Option& row, Setting& s) {
  switch (row.kind) {
    case Kind::flag:
    case Kind::negatable: {
      const auto b = to_boolean(s.value);
      if (!b) reject(s, "a boolean (write 1, 0, true, false, yes, no, on or off)");
      const bool inverted = row.convert == Convert::inverted && s.source == Source::environment;
      s.value = *b != inverted ? "1" : "0";
      return;
    }
    case Kind::integer: {
      const auto n = to_integer(s.value);
      if (!n || *n > INT_MAX || *n < INT_MIN) reject(s, "a whole number");
      check_range(row, s, static_cast<double>(*n));
      return;
    }
    case Kind::number: {
      auto n = to_number(s.value);
      if (!n) reject(s, "a number");
      check_range(row, s, *n);
      if (row.convert == Convert::megabytes && s.source == Source::environment)
        s.value = short_number(*n / (1024.0 * 1024.0));
      return;
    }
    case Kind::text:
      if (s.value.empty() && s.source != Source::environment) throw Error(Code::usage, s.where, "is empty");
      check_choice(row, s);
      return;
    case Kind::pair:
      return;
  }
}

std::string variable_value(const Option& row, const std::string& value) {
  switch (row.convert) {
    case Convert::same:
      return value;
    case Convert::inverted:
      return value == "1" ? "0" : "1";
    case Convert::megabytes:
      return short_number(std::floor(to_number(value).value_or(0) * 1024 * 1024));
  }
  return value;
}

}  // namespace

void Settings::set(const Option& row, Setting setting) {
  if (row.support == Support::later && setting.source != Source::environment)
    throw Error(Code::usage, setting.where, std::string(row.remark));
  check(row, setting);
  const auto old = values_.find(row.id);
  if (old != values_.end() && old->second.source > setting.source) return;
  values_.insert_or_assign(std::string(row.id), std::move(setting));
}

const Setting* Settings::find(std::string_view id) const {
  const auto it = values_.find(id);
  return it == values_.end() ? nullptr : &it->second;
}

std::string Settings::text(std::string_view id) const {
  const Setting* s = find(id);
  return s && !s->value.empty() ? s->value : std::string(option(id).fallback);
}

bool Settings::flag(std::string_view id) const { return text(id) == "1"; }

std::optional<int> Settings::integer(std::string_view id) const {
  const auto n = to_integer(text(id));
  return n ? std::optional<int>(static_cast<int>(*n)) : std::nullopt;
}

double Settings::number(std::string_view id) const { return to_number(text(id)).value_or(0); }

std::map<std::string, std::string> Settings::rank_variables() const {
  std::map<std::string, std::string> variables;
  for (const auto& [id, setting] : values_) {
    const Option& row = option(id);
    if (row.for_ranks && setting.source != Source::environment)
      variables[std::string(row.variable)] = variable_value(row, setting.value);
  }
  return variables;
}

std::vector<std::string> Settings::remarks() const {
  std::vector<std::string> lines;
  for (const auto& [id, setting] : values_) {
    const Option& row = option(id);
    const bool on = row.kind != Kind::negatable || setting.value == "1";
    if (row.support == Support::note && on) lines.emplace_back(row.remark);
  }
  return lines;
}

CommandLine read_command_line(const std::vector<std::string>& args, const Environment& environment) {
  CommandLine line = parse_arguments(args);
  for (const Option& row : option_table()) {
    if (row.variable.empty() || row.support == Support::later) continue;
    const std::string name(row.variable);
    const char* value = environment(name.c_str());
    if (value && *value) line.settings.set(row, {value, Source::environment, name});
  }
  if (const Setting* config = line.settings.find("config-file"))
    read_config(line.settings, read_trusted(config->value, most_config_bytes, line.settings.flag("allow-writable")),
                config->value);
  return line;
}

std::vector<std::string> shell_words(std::string_view text, const std::string& where) {
  std::vector<std::string> out;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < text.size();
    if (escapes) {
      word += text[++i], in_word = true;
    } else if (quote) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c, in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) out.push_back(std::exchange(word, {}));
      in_word = false;
    } else {
      word += c, in_word = true;
    }
  }
  if (quote) throw Error(Code::usage, where, std::string("has no closing ") + quote);
  if (in_word) out.push_back(word);
  return out;
}

}  // namespace hvd::launcher
