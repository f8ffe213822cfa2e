/// The results of a discovery script: its hosts, and one message if there are none.
#include "launcher/elastic/host_discovery.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "launcher/hosts/parse_hosts.h"

using namespace hvd::launcher;

namespace {

/// A script in a folder of its own, and its discovery under the test's clock.
struct Discovering {
  std::filesystem::path script;
  std::optional<HostDiscovery> discovery;
  double now = 0;

  explicit Discovering(const std::string& text) {
    char folder[] = "/tmp/hvd-discovery-XXXXXX";
    script = std::filesystem::path(::mkdtemp(folder)) / "hosts.sh";
    becomes(text);
    discovery.emplace(
        DiscoverySource{{script}, "", [](const std::string& hosts) { return parse_discovered(hosts, 1, "hosts.sh"); }});
  }
  ~Discovering() { std::filesystem::remove_all(script.parent_path()); }

  /// Writes a new file: a running script cannot be written to.
  void becomes(const std::string& text) const {
    const std::filesystem::path fresh = script.string() + ".new";
    std::ofstream(fresh) << "#!/bin/sh\n" << text << "\n";
    ::chmod(fresh.c_str(), 0700);
    std::filesystem::rename(fresh, script);
  }

  /// Asks once and returns the answer. @p hangs: the script does not end by itself
  HostDiscovery::Discovered ask(bool hangs = false) {
    now += 2;
    CHECK(discovery->turn(now).line.empty());
    REQUIRE(discovery->child());
    HostDiscovery::Discovered all;
    if (hangs) now += 11, all = discovery->turn(now);
    for (int i = 0; discovery->child() && i < 5000; ++i) {
      HostDiscovery::Discovered found = discovery->turn(now);
      if (found.hosts) all.hosts = found.hosts;
      all.line += found.line;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    CHECK_FALSE(discovery->child());
    return all;
  }
};

}  // namespace

TEST_CASE("host discovery: a script that hangs is told of once") {
  Discovering d("exec sleep 60");
  CHECK(d.ask(true).line ==
        d.script.string() + ": did not end within 10 s; the job keeps its hosts, and hvdrun runs the script again");
  for (int round = 0; round < 3; ++round) CHECK(d.ask(true).line.empty());
}

TEST_CASE("host discovery: without a descriptor for the script, the hosts stay as they are") {
  Discovering d("echo a:2");
  CHECK(d.ask().hosts);
  rlimit files{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  rlimit none = files;
  none.rlim_cur = 0;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const HostDiscovery::Discovered found = d.discovery->turn(d.now += 2);
  const HostDiscovery::Discovered again = d.discovery->turn(d.now += 2);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
  CHECK_FALSE(found.hosts);
  CHECK(found.line.find("cannot be started: pipe: Too many open files") != std::string::npos);
  CHECK(again.line.empty());
  d.becomes("echo a:3");
  CHECK(d.ask().hosts);
}

TEST_CASE("host discovery: reasons that take turns, and answers between them") {
  Discovering d("exit 3");
  CHECK(d.ask().line.find("ended with exit code 3") != std::string::npos);
  d.becomes("echo a:x");
  CHECK(d.ask().line.find("hosts.sh:1:3") != std::string::npos);
  d.becomes("exit 3");
  CHECK(d.ask().line.empty());
  d.becomes("echo a:2");
  const HostDiscovery::Discovered found = d.ask();
  REQUIRE(found.hosts);
  CHECK(found.hosts->at(0).slots == 2);
  CHECK(found.line.empty());
  d.becomes("exit 3");
  CHECK(d.ask().line.empty());  // a minute is not over
  d.becomes("echo a:2");
  CHECK_FALSE(d.ask().hosts);  // they have not changed
  d.now += 60;
  CHECK_FALSE(d.ask().hosts);
  d.becomes("exit 3");
  CHECK(d.ask().line.find("ended with exit code 3") != std::string::npos);
}

TEST_CASE("host discovery: a list of 100 KiB is read whole") {
  Discovering d("i=1000; while [ $i -lt 9000 ]; do echo node-with-a-name-$i:1; i=$((i + 1)); done");
  const HostDiscovery::Discovered found = d.ask();
  REQUIRE(found.hosts);
  CHECK(found.hosts->size() == 8000);
  CHECK(found.hosts->front().name == "node-with-a-name-1000");
}

TEST_CASE("host discovery: a script that prints without an end is killed, and told of once") {
  Discovering d("exec yes node1");
  const std::string expected = ": printed more than 1 MiB; the job keeps its hosts, and hvdrun runs the script again";
  CHECK(d.ask().line == d.script.string() + expected);
  CHECK(d.ask().line.empty());
  d.becomes("echo node1");
  CHECK(d.ask().hosts->size() == 1);
  d.becomes("yes node1 | head -c 1100000");
  CHECK_FALSE(d.ask().hosts);
}

TEST_CASE("host discovery: a NUL byte") {
  Discovering d("printf 'a\\n\\0b\\n'");
  CHECK(d.ask().line.find("hosts.sh:2:1: a NUL byte is not expected here") != std::string::npos);
}
