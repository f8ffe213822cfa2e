#include "launcher/hosts/host_manifest.h"

#include <doctest/doctest.h>

#include "../errors.h"
#include "base/text.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::string manifest(const std::string& text) {
  const Allocation a = parse_manifest(text, "m");
  std::string out = a.source + ":";
  for (const HostSlots& h : a.hosts) out += " " + h.host + "=" + std::to_string(h.slots);
  return a.launch_agent.empty() ? out : out + " | " + join(a.launch_agent, " ");
}
std::string mistake(const std::string& text) {
  return error_of([&] { manifest(text); });
}

}  // namespace

TEST_CASE("manifest: JSON and YAML") {
  CHECK(manifest(R"({"version": 1, "source": "spark", "application": "app-1",
                     "hosts": [{"address": "10.0.0.1", "slots": 2, "gpus": 2}, {"address": "10.0.0.2", "gpus": 3}],
                     "launch_agent": ["python3", "agent.py", "{host}"]})") ==
        "manifest m of spark app-1: 10.0.0.1=2 10.0.0.2=3 | python3 agent.py {host}");
  CHECK(manifest("version: 1\nsource: scheduler\nhosts:\n  - {address: n1}\n  - address: fe80::1\n    slots: 4\n") ==
        "manifest m of scheduler: n1=1 fe80::1=4");
  const std::string short_one = "version: 1\nsource: x\nhosts: [{address: a}]\n";
  CHECK(parse_manifest(short_one + "launcher_address: 10.0.0.9", "m").launcher_address == "10.0.0.9");
  CHECK(parse_manifest(short_one, "m").launcher_address.empty());
}

TEST_CASE("manifest: GPUs by number or by name") {
  const Allocation a = parse_manifest(
      R"({"version": 1, "source": "spark", "hosts": [{"address": "a", "gpus": ["4", "10"]}, {"address": "b", "gpus": 2}]})",
      "m");
  CHECK(a.hosts[0].gpus == std::vector<std::string>{"4", "10"});
  CHECK(a.hosts[0].slots == 2);
  CHECK(a.hosts[1].gpus.empty());
  const std::string see = " (hvdrun-manifest(5) describes it)";
  CHECK(mistake("version: 1\nsource: x\nhosts: [{address: a, gpus: []}]") ==
        "m:3:28: 'gpus' must be a number or a list of at least one GPU" + see);
  CHECK(mistake("version: 1\nsource: x\nhosts: [{address: a, gpus: ['1,2']}]") ==
        "m:3:29: 'gpus' must list GPUs as CUDA_VISIBLE_DEVICES names them" + see);
}

TEST_CASE("manifest: mistakes are named with their place") {
  const std::string see = " (hvdrun-manifest(5) describes it)";
  CHECK(mistake("version: 2\nsource: x\nhosts: [{address: a}]") ==
        "m:1:10: 'version' must be 1, the one that this hvdrun knows" + see);
  CHECK(mistake("version: 1\nhosts: [{address: a}]") == "m:1:1: 'source' is missing" + see);
  CHECK(mistake("version: 1\nsource: x\nhosts: []") == "m:3:8: 'hosts' must be a list of hosts" + see);
  CHECK(mistake("version: 1\nsource: x\nhosts:\n - {address: a, slot: 2}") ==
        "m:4:17: 'slot' is not a key of a manifest" + see);
  CHECK(mistake("version: 1\nsource: x\nhosts:\n - {address: a, slots: 0}") ==
        "m:4:24: 'slots' must be a whole number, at least 1" + see);
  CHECK(mistake("version: 1\nsource: x\nhosts:\n - {address: 'a b'}") ==
        "m:4:14: 'a b' is not one host name or address" + see);
  CHECK(mistake("version: 1\nsource: x\nsource: y\nhosts: [{address: a}]") == "m:3:1: 'source' is there twice" + see);
  CHECK(mistake("[1, 2]") == "m:1:1: keys and values are expected here" + see);
  CHECK(mistake("version: 1\nsource: x\nhosts: [{address: a}]\nlaunch_agent: ssh") ==
        "m:4:15: 'launch_agent' must be a list of words" + see);
  CHECK(mistake("{version: 1").starts_with("m:1:"));
}
