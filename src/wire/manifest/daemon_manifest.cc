#include "daemon_manifest.h"

#include "base/error.h"
#include "manifest.h"
#include "wire/json.h"

namespace hvd::wire {
std::string to_json(const DaemonManifest& m) {
  Json hosts = Json::array();
  for (const DaemonManifest::Host& h : m.hosts) hosts.push_back({{"name", from_bytes(h.name)}, {"ranks", h.ranks}});
  return dump(Json{{"job", m.job},
                   {"pmix_namespace", m.pmix_namespace},
                   {"hosts", std::move(hosts)},
                   {"oversubscribed", m.oversubscribed},
                   {"programs", m.programs}});
}

DaemonManifest daemon_manifest_from_json(const std::string& text) {
  const Json json = parse_object(text, "daemon manifest");
  const Fields f(json, "daemon manifest");
  DaemonManifest m;
  m.job = f.bytes("job");
  m.pmix_namespace = f.bytes("pmix_namespace");
  m.oversubscribed = f.boolean("oversubscribed");
  m.programs = f.integers("programs", 0, most_ranks);
  const Json& hosts = f.at("hosts");
  if (!hosts.is_array()) f.bad("hosts", "is no list");
  for (const Json& host : hosts) {
    const Fields h(host, "daemon manifest.hosts");
    m.hosts.push_back({h.bytes("name"), h.integers("ranks", 0, most_ranks)});
    if (m.hosts.back().ranks.empty()) h.bad("ranks", "is empty");
  }
  return m;
}

}  // namespace hvd::wire
