#include "launcher/doctor/differences.h"

#include <algorithm>
#include <cstddef>

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_packages_named = 8;
constexpr std::size_t most_packages_read = 5000;

struct Trait {
  const char* key;
  const char *own, *others;  ///< words before this host's value and before the others' value
  const char* hint;
};

constexpr Trait traits[] = {
    {"build", "has ", ", others have ", "install the same wheel everywhere"},
    {"interpreter", "its Python is ", ", on others it is ", "packages may differ: name one with --python PATH"},
    {"libc", "has ", ", others have ", "programs and wheels built with a newer libc fail with an older one"},
    {"tcp", "its TCP congestion control is ", ", on others it is ",
     "if one host sends slower: sysctl -w net.ipv4.tcp_congestion_control=NAME there"},
    {"kernel", "has Linux ", ", others have ", "if a job fails only there: update it"},
};

std::string told(const PackageDifference& d) {
  if (d.version.empty()) return formatted("{} missing (others {})", d.name, d.usual);
  if (d.usual.empty()) return formatted("{} {} (others lack it)", d.name, d.version);
  return formatted("{} {} (others {})", d.name, d.version, d.usual);
}

Problem package_problem(const Answers& a, const std::vector<PackageDifference>& differences,
                        const std::string& python) {
  std::vector<std::string> names, wanted, unwanted;
  for (std::size_t i = 0; i < std::min(differences.size(), most_packages_named); ++i) {
    const PackageDifference& d = differences[i];
    names.push_back(told(d));
    if (d.usual.empty())
      unwanted.push_back(d.name);
    else
      wanted.push_back(shell_quote(d.name + "==" + d.usual));
  }
  std::string what = count_of(static_cast<long long>(differences.size()), "package") +
                     (differences.size() == 1 ? " differs: " : " differ: ") + join(names, ", ");
  if (const std::size_t more = differences.size() - names.size()) what += formatted(", and {} more (--json)", more);
  const std::string pip = "there: " + shell_quote(python) + " -m pip ";
  return {a.host, what,
          wanted.empty() ? pip + "uninstall " + join(unwanted, " ") : pip + "install " + join(wanted, " "), false};
}

}  // namespace

Packages packages_of(const Answers& a) {
  Packages found;
  for (const std::string& word : words(value(a, "packages"))) {
    const std::size_t at = word.find("==");
    if (at == std::string::npos || at == 0 || found.size() >= most_packages_read) continue;
    found.emplace(word.substr(0, at), word.substr(at + 2));
  }
  return found;
}

Packages usual_packages(const std::vector<Answers>& all) {
  std::map<std::string, std::map<std::string, int>> votes;  // by package and version
  Packages here;
  int voters = 0;
  for (const Answers& a : all) {
    const Packages packages = packages_of(a);
    if (packages.empty()) continue;
    ++voters;
    if (a.local) here = packages;
    for (const auto& [name, version] : packages) ++votes[name][version];
  }
  Packages usual;
  for (auto& [name, versions] : votes) {
    int present = 0;
    for (const auto& [version, count] : versions) present += count;
    if (present < voters) versions[""] = voters - present;
    const auto mine = here.find(name);
    const std::string own = mine == here.end() ? "" : mine->second;
    auto best = versions.find(here.empty() ? versions.begin()->first : own);
    if (best == versions.end()) best = versions.begin();
    for (auto it = versions.begin(); it != versions.end(); ++it)
      if (it->second > best->second) best = it;
    if (!best->first.empty()) usual.emplace(name, best->first);
  }
  return usual;
}

std::vector<PackageDifference> package_differences(const Answers& a, const Packages& usual) {
  const Packages own = packages_of(a);
  std::vector<PackageDifference> found;
  if (own.empty()) return found;
  for (const auto& [name, version] : own) {
    const auto it = usual.find(name);
    if (it == usual.end() || it->second != version)
      found.push_back({name, version, it == usual.end() ? "" : it->second});
  }
  for (const auto& [name, version] : usual)
    if (!own.contains(name)) found.push_back({name, "", version});
  std::sort(found.begin(), found.end(), [](const auto& x, const auto& y) { return x.name < y.name; });
  return found;
}

std::vector<Problem> find_differences(const std::vector<Answers>& all, const std::string& python) {
  std::vector<Problem> out;
  const Packages packages = usual_packages(all);
  for (const Trait& t : traits) {
    const std::string most = usual(all, t.key);
    for (const Answers& a : all)
      if (const std::string own = value(a, t.key); !own.empty() && own != most)
        out.push_back({a.host, t.own + own + t.others + most, t.hint, false});
  }
  for (const Answers& a : all)
    if (const auto differences = package_differences(a, packages); !differences.empty())
      out.push_back(package_problem(a, differences, python));
  return out;
}

}  // namespace hvd::launcher
