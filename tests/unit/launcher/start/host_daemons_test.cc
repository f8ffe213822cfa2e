#include "launcher/start/host_daemons.h"

#include <doctest/doctest.h>
#include <poll.h>

#include <csignal>

#include "base/error.h"

using namespace hvd::launcher;

TEST_CASE("host daemons: one that cannot be started keeps its place") {
  HostDaemons daemons({{"a", {"/bin/sh", "-c", "exit 3"}, {}, ""}});
  CHECK_THROWS_AS(daemons.add({"b", {"/no/such/program"}, {}, ""}), hvd::Error);
  daemons.add_unstarted("b");
  daemons.add({"c", {"/bin/sh", "-c", "exit 4"}, {}, ""});
  for (int i = 0; i < 2000 && !daemons.status(); ++i) ::poll(nullptr, 0, 5);
  CHECK(daemons.status() == 3 << 8);
  CHECK_FALSE(daemons.report(1).status);
  CHECK(daemons.report(2).status == 4 << 8);
  CHECK(daemons.children().size() == 2);
  CHECK(daemons.ended_hosts() == std::map<std::string, int>{{"a", 3 << 8}, {"c", 4 << 8}});
  CHECK(daemons.host_logs().empty());
  daemons.signal(SIGKILL);
}

TEST_CASE("host daemons: output and end of each; an end that status() has seen is told still") {
  HostDaemons daemons({{"a", {"/bin/sh", "-c", "echo of a; exit 3"}, {}, ""}, {"b", {"/bin/sleep", "60"}, {}, ""}});
  daemons.add({"c", {"/bin/sh", "-c", "echo of c"}, {}, "", true});
  std::string output;
  for (int i = 0; i < 2000 && (output.size() < 10 || daemons.host_logs().size() < 2 || daemons.status()); ++i) {
    output += daemons.read_output();
    ::poll(nullptr, 0, 5);
  }
  CHECK(output.size() == 10);
  std::map<std::string, int> ended;
  for (int i = 0; i < 2000 && (ended.empty() || !daemons.has_handed_on()); ++i) {
    daemons.status();  // polls the first, and takes its exit status
    ended = daemons.ended_hosts();
    ::poll(nullptr, 0, 5);
  }
  CHECK(ended == std::map<std::string, int>{{"a", 3 << 8}});  // c has passed its task on, b runs
  CHECK(daemons.ended_hosts() == ended);
  CHECK(daemons.report(0).status == 3 << 8);
  CHECK(daemons.report(0).said == "of a\n");
  CHECK_FALSE(daemons.report(1).status);
  CHECK_FALSE(daemons.report(2).status);
  CHECK_FALSE(daemons.status());
  daemons.signal(SIGKILL);
  for (int i = 0; i < 2000 && !daemons.status(); ++i) ::poll(nullptr, 0, 5);
  CHECK(daemons.ended_hosts().at("b") == SIGKILL);
}
