#include "launcher/options/settings.h"

#include <algorithm>

#include "base/error.h"
#include "base/files/trust.h"
#include "base/text.h"
#include "options/value.h"

namespace hvd::launcher {

namespace {

using namespace options;

constexpr std::size_t most_config_bytes = 1u << 20;

}  // namespace

void Settings::set(const Option& row, Setting setting) {
  if (row.effect == Effect::refused && setting.source != SettingSource::environment)
    throw Error(Code::usage, setting.where, std::string(row.remark));
  const auto unit = setting.source == SettingSource::environment ? ValueUnit::variable : ValueUnit::option;
  setting.value = checked(row, std::move(setting.value), setting.where, unit);
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
    if (row.for_ranks && setting.source != SettingSource::environment)
      variables[row.variable] = variable_text(row, setting.value);
  }
  return variables;
}

std::vector<std::string> Settings::remarks() const {
  std::vector<std::string> lines;
  for (const auto& [id, setting] : values_) {
    const Option& row = option(id);
    const bool on = row.type != ValueType::negatable || setting.value == "1";
    if (row.effect != Effect::none || !on || row.remark.empty()) continue;
    if (std::find(lines.begin(), lines.end(), row.remark) == lines.end()) lines.emplace_back(row.remark);
  }
  return lines;
}

CommandLine read_command_line(const std::vector<std::string>& args, const Environment& environment) {
  CommandLine line = parse_arguments(args);
  for (const Option& row : command_line_options()) {
    if (!row.has_variable() || row.effect == Effect::refused) continue;
    const char* value = environment(row.variable);
    if (value && *value) line.settings.set(row, {value, SettingSource::environment, row.variable});
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
