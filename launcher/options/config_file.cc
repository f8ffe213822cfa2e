/// --config-file: YAML whose dotted keys are in the table.
#include <yaml-cpp/yaml.h>

#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "launcher/options/settings.h"

namespace hvd::launcher {

namespace {

constexpr int most_levels = 8, most_values = 10'000;  // aliases let a short file hold very many values

struct ConfigReader {
  Settings& settings;
  const std::string& name;
  int values = 0;

  std::string at(const YAML::Mark& mark) const {
    if (mark.is_null()) return name;
    return formatted("{}:{}:{}", name, mark.line + 1, mark.column + 1);
  }

  static const Option* row_of(const std::string& key) {
    for (const Option& row : command_line_options())
      if (row.yaml == key) return &row;
    return nullptr;
  }

  void count(const YAML::Node& node) {
    if (++values > most_values)
      throw Error(Code::usage, at(node.Mark()), formatted("more than {} values", most_values),
                  "are there aliases (*name) of aliases?");
  }

  void read(const YAML::Node& node, const std::string& prefix, int level) {
    if (level > most_levels) throw Error(Code::usage, at(node.Mark()), "nested too deeply");
    std::set<std::string> seen;
    for (const auto& entry : node) {
      count(entry.first);
      if (!entry.first.IsScalar()) throw Error(Code::usage, at(entry.first.Mark()), "a key must be a word");
      if (!seen.insert(entry.first.Scalar()).second)
        throw Error(Code::usage, at(entry.first.Mark()), "'" + entry.first.Scalar() + "' is there twice", "keep one");
      const std::string key = prefix.empty() ? entry.first.Scalar() : prefix + "." + entry.first.Scalar();
      if (entry.second.IsMap()) {
        read(entry.second, key, level + 1);
        continue;
      }
      if (horovods_own(key, entry.second)) continue;
      const Option* row = row_of(key);
      if (!row) {
        const std::string near = nearest_key(key);
        throw Error(Code::usage, at(entry.first.Mark()), "no option is called '" + key + "'",
                    near.empty() ? "hvdrun(1) lists the keys" : "did you mean " + near + "?");
      }
      if (entry.second.IsNull()) continue;
      settings.set(*row, {value_of(entry.second, key), SettingSource::config, at(entry.second.Mark())});
    }
  }

  /// Horovod's keys that belong to no option: the controller, and the older opposite of with_timestamp.
  bool horovods_own(const std::string& key, const YAML::Node& value) {
    const bool controller = key == "controller";
    if ((!controller && key != "logging.hide_timestamp") || !value.IsScalar()) return false;
    const std::string where = at(value.Mark());
    if (!controller) {
      const auto hidden = to_boolean(value.Scalar());
      if (!hidden) throw Error(Code::usage, where, "'" + value.Scalar() + "' is not a boolean", "write true or false");
      settings.set(option("log-with-timestamp"), {*hidden ? "0" : "1", SettingSource::config, where});
      return true;
    }
    std::string chosen = value.Scalar();
    for (char& c : chosen) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    if (chosen != "mpi" && chosen != "gloo")
      throw Error(Code::usage, where, "'" + value.Scalar() + "' is no controller", "write mpi or gloo");
    settings.set(option(chosen), {"1", SettingSource::config, where});
    return true;
  }

  std::string value_of(const YAML::Node& node, const std::string& key) {
    if (node.IsScalar()) return node.Scalar();
    std::vector<std::string> items;
    for (const auto& item : node) {
      count(item);
      if (!item.IsScalar()) throw Error(Code::usage, at(item.Mark()), "'" + key + "' takes plain values");
      items.push_back(item.Scalar());
    }
    return join(items, key == "elastic.blacklist_cooldown_range" ? " " : ",");
  }
};

}  // namespace

void read_config(Settings& settings, const std::string& text, const std::string& name) {
  ConfigReader reader{settings, name};
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1)
      throw Error(Code::usage, name, formatted("has {} YAML documents", documents.size()), "keep one of them");
    const YAML::Node root = documents.empty() ? YAML::Node() : documents[0];
    if (root.IsNull()) return;
    if (!root.IsMap())
      throw Error(Code::usage, name + ":1:1", "not a list of settings",
                  "write for example  params: {cycle_time_ms: 2}");
    reader.read(root, {}, 1);
  } catch (const YAML::Exception& e) { throw Error(Code::usage, reader.at(e.mark), "not YAML: " + e.msg); }
}

}  // namespace hvd::launcher
