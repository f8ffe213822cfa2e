#include "launcher/doctor/as_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "launcher/doctor/differences.h"
#include "launcher/doctor/gpus.h"

namespace hvd::launcher {
namespace {

using nlohmann::ordered_json;

ordered_json host_of(const Answers& a, const Packages& usual) {
  ordered_json host{{"host", a.host}, {"reached", a.unreachable.empty()}};
  if (!a.unreachable.empty()) return host;
  host["local"] = a.local;
  host["clock_skew_seconds"] = a.local ? 0.0 : a.clock_skew_seconds;
  auto last_word = [&a](const char* key) {
    const std::vector<std::string> w = words(value(a, key));
    return w.empty() ? std::string() : w.back();
  };
  for (const auto& [name, text] : {std::pair<const char*, std::string>{"hvdrank", last_word("rank")},
                                   {"open_mpi", last_word("mpi")},
                                   {"python", value(a, "python")},
                                   {"hvd", value(a, "hvd")},
                                   {"build", value(a, "build")},
                                   {"interpreter", value(a, "interpreter")},
                                   {"libc", value(a, "libc")},
                                   {"kernel", value(a, "kernel")},
                                   {"tcp_congestion_control", value(a, "tcp")},
                                   {"driver", value(a, "driver")},
                                   {"nccl", value(a, "nccl")}})
    if (!text.empty()) host[name] = text;
  if (const auto count = to_integer(value(a, "gpus"))) host["gpus"] = *count;
  for (const auto& [way, pairs] : pairs_by_way(a)) host["pairs_of_gpus"][way] = pairs;
  if (const std::string aware = value(a, "aware"); !aware.empty()) host["mpi_takes_device_memory"] = aware == "yes";
  const std::vector<std::string> shm = words(value(a, "shm"));
  if (const auto kib = shm.empty() ? std::nullopt : to_integer(shm[0])) host["shm_bytes"] = *kib * 1024;
  if (const auto files = to_integer(value(a, "files"))) host["open_files"] = *files;
  const auto text_or_null = [](const std::string& t) { return t.empty() ? ordered_json(nullptr) : ordered_json(t); };
  for (const PackageDifference& d : package_differences(a, usual))
    host["packages_that_differ"].push_back(
        {{"name", d.name}, {"version", text_or_null(d.version)}, {"others", text_or_null(d.usual)}});
  return host;
}

}  // namespace

std::string doctor_json(const std::vector<Answers>& all, const std::vector<Problem>& problems,
                        const std::vector<std::string>& reach_us) {
  ordered_json hosts = ordered_json::array(), found = ordered_json::array();
  const Packages packages = usual_packages(all);
  for (const Answers& a : all) hosts.push_back(host_of(a, packages));
  for (const Problem& p : problems)
    found.push_back({{"host", p.host}, {"fatal", p.fatal}, {"what", p.what}, {"hint", p.hint}});
  const bool ready = std::none_of(problems.begin(), problems.end(), [](const Problem& p) { return p.fatal; });
  const ordered_json document{{"ready", ready}, {"hosts", hosts}, {"reach_us", reach_us}, {"problems", found}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hvd::launcher
