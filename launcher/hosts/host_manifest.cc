#include "launcher/hosts/host_manifest.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "launcher/hosts/host_reader.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_gpus = 1024;  // of a host
constexpr const char* see = "hvdrun-manifest(5) describes it";

class ManifestReader {
 public:
  explicit ManifestReader(const std::string& name) : name_(name) {}

  std::string at(const YAML::Mark& mark) const {
    if (mark.is_null()) return name_;
    return formatted("{}:{}:{}", name_, mark.line + 1, mark.column + 1);
  }
  [[noreturn]] void fail(const YAML::Node& node, const std::string& what) const {
    throw Error(Code::usage, at(node.Mark()), what, see);
  }

  /// Throws unless every key is one of @p known and stands once.
  void check_keys(const YAML::Node& map, const std::set<std::string>& known) const {
    if (!map.IsMap()) fail(map, "keys and values are expected here");
    std::set<std::string> seen;
    for (const auto& entry : map) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      if (!known.contains(key)) fail(entry.first, "'" + key + "' is not a key of a manifest");
      if (!seen.insert(key).second) fail(entry.first, "'" + key + "' is there twice");
    }
  }

  std::string word(const YAML::Node& map, const char* key, bool required) const {
    const YAML::Node node = map[key];
    if (!node || node.IsNull()) {
      if (required) fail(map, std::string("'") + key + "' is missing");
      return {};
    }
    if (!node.IsScalar() || node.Scalar().empty()) fail(node, std::string("'") + key + "' must be a word");
    return node.Scalar();
  }

  int number(const YAML::Node& map, const char* key, int least, int otherwise) const {
    const std::string text = word(map, key, false);
    if (text.empty()) return otherwise;
    const auto n = to_integer(text);
    if (!n || *n < least || *n > 1 << 20)
      fail(map[key], formatted("'{}' must be a whole number, at least {}", key, least));
    return static_cast<int>(*n);
  }

  /// The list of GPUs.  Nothing: `gpus` is a number, or missing.
  std::vector<std::string> gpus(const YAML::Node& host) const {
    std::vector<std::string> out;
    const YAML::Node node = host["gpus"];
    if (!node || !node.IsSequence()) return out;
    if (node.size() == 0) fail(node, "'gpus' must be a number or a list of at least one GPU");
    if (node.size() > most_gpus) fail(node, formatted("'gpus' lists more than {}", most_gpus));  // aliases repeat it
    for (const auto& gpu : node) {
      if (!gpu.IsScalar() || gpu.Scalar().empty() || gpu.Scalar().find_first_of(", \t\n") != std::string::npos)
        fail(gpu, "'gpus' must list GPUs as CUDA_VISIBLE_DEVICES names them");
      out.push_back(gpu.Scalar());
    }
    return out;
  }

  std::string address(const YAML::Node& host) const {
    std::string text = word(host, "address", true);
    const bool ipv6 = std::count(text.begin(), text.end(), ':') > 1 && text[0] != '[';
    const std::string bracketed = ipv6 ? "[" + text + "]" : text;
    HostReader reader(bracketed, [&](std::size_t) { return at(host["address"].Mark()); });
    const std::vector<std::string> names = reader.hosts();
    if (names.size() != 1 || !reader.at_end()) fail(host["address"], "'" + text + "' is not one host name or address");
    return names[0];
  }

 private:
  const std::string& name_;
};

}  // namespace

Allocation parse_manifest(const std::string& text, const std::string& name) {
  const ManifestReader reader(name);
  try {
    const YAML::Node root = YAML::Load(text);
    reader.check_keys(root, {"version", "source", "application", "hosts", "launch_agent", "launcher_address"});
    if (reader.number(root, "version", 1, 0) != 1)
      reader.fail(root["version"] ? root["version"] : root, "'version' must be 1, the one that this hvdrun knows");
    Allocation a;
    a.source = formatted("manifest {} of {}", name, reader.word(root, "source", true));
    if (const std::string application = reader.word(root, "application", false); !application.empty())
      a.source += " " + application;
    a.launcher_address = reader.word(root, "launcher_address", false);
    const YAML::Node hosts = root["hosts"];
    if (!hosts || !hosts.IsSequence() || hosts.size() == 0)
      reader.fail(hosts ? hosts : root, "'hosts' must be a list of hosts");
    if (hosts.size() > most_hosts) reader.fail(hosts, "'hosts' has too many entries");
    for (const auto& host : hosts) {
      reader.check_keys(host, {"address", "slots", "gpus"});
      const std::string address = reader.address(host);
      std::vector<std::string> named = reader.gpus(host);
      const int gpus = named.empty() ? reader.number(host, "gpus", 0, 0) : static_cast<int>(named.size());
      add_host(a, address, reader.number(host, "slots", 1, std::max(1, gpus)), reader.at(host.Mark()));
      a.hosts[a.places.at(address)].gpus = std::move(named);
    }
    if (const YAML::Node agent = root["launch_agent"]) {
      if (!agent.IsSequence() || agent.size() == 0) reader.fail(agent, "'launch_agent' must be a list of words");
      for (const auto& w : agent) {
        if (!w.IsScalar()) reader.fail(w, "'launch_agent' must be a list of words");
        a.launch_agent.push_back(w.Scalar());
      }
    }
    return a;
  } catch (const YAML::Exception& e) { throw Error(Code::usage, reader.at(e.mark), "neither JSON nor YAML: " + e.msg); }
}

}  // namespace hvd::launcher
