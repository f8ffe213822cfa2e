#include "launcher/hosts/parse_hosts.h"

#include <doctest/doctest.h>

#include "../errors.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::string text_of(const Allocation& a) {
  std::string out;
  for (const HostSlots& h : a.hosts) out += h.host + "=" + std::to_string(h.slots) + " ";
  return out;
}
std::string hosts(std::string_view text) { return text_of(parse_hosts(text)); }
std::string file(std::string_view text) { return text_of(parse_hostfile(text, "hosts")); }
std::string hosts_error(std::string_view text) {
  return error_of([&] { parse_hosts(text); });
}
std::string file_error(std::string_view text) {
  return error_of([&] { parse_hostfile(text, "hosts"); });
}

}  // namespace

TEST_CASE("hosts: -H") {
  CHECK(hosts("a:2,b:4") == "a=2 b=4 ");
  CHECK(hosts("a") == "a=1 ");
  CHECK(hosts("a:1,b,a:2") == "a=3 b=1 ");
  CHECK(hosts("node[01-03,7]x:2") == "node01x=2 node02x=2 node03x=2 node7x=2 ");
  CHECK(hosts("r[1-2]n[1-2]") == "r1n1=1 r1n2=1 r2n1=1 r2n2=1 ");
  CHECK(hosts("[fe80::1]:2,10.0.0.1:1") == "fe80::1=2 10.0.0.1=1 ");
  CHECK(hosts("[fe80::1%eth0.7]:2") == "fe80::1%eth0.7=2 ");
  for (const char* zone : {"$(touch /tmp/x)", "", "-a", "a;b", "a b", "a'"})
    CHECK(hosts_error(std::string("[fe80::1%") + zone + "]:2").find("is not an IPv6 address") != std::string::npos);
}

TEST_CASE("hosts: mistakes in -H") {
  CHECK(hosts_error("a:0") == "-H:3: slots must be > 0 (write host:slots)");
  CHECK(hosts_error("a:x") == "-H:3: 'x' is not a number of slots (write host:slots)");
  CHECK(hosts_error("a:") == "-H:3: the number of slots is missing (write host:slots, for example node1:4)");
  CHECK(hosts_error("a,,b") == "-H:3: a host name is missing");
  CHECK(hosts_error("") == "-H:1: a host name is missing");
  CHECK(hosts_error("::1:2") ==
        "-H:1: a host name cannot begin with ':' (write an IPv6 address in brackets: [address]:slots)");
  CHECK(hosts_error("me@a:2") ==
        "-H:3: '@' is not expected here (write host:slots, and the user for ssh into ~/.ssh/config: Host, User)");
  CHECK(hosts_error("a b") == "-H:3: 'b' is not expected here (write host:slots,host:slots)");
  CHECK(hosts_error("[zz]:1") == "-H:2: 'zz' is not an IPv6 address (write [address]:slots)");
  CHECK(hosts_error("n[3-1]") == "-H:3: the range runs backwards (write the smaller number first)");
  CHECK(hosts_error("n[1-999999999]") == "-H:3: the range has too many hosts");
  CHECK(hosts_error("n[0-9999][0-9999]") == "-H:1: the ranges make too many hosts");
  CHECK(hosts_error("-x:1") == "-H:1: a host name cannot begin with '-'");
}

TEST_CASE("hosts: all forms of a hostfile") {
  CHECK(file("# all hosts\n\n  a slots=2 # two\nb:3\nc\r\nd slots = 4 max_slots=8\nnode[1-2] slots=1\n[::1] slots=2") ==
        "a=2 b=3 c=1 d=4 node1=1 node2=1 ::1=2 ");
}

TEST_CASE("hosts: the mark of UTF-8 at a hostfile's begin") {
  CHECK(file("\xef\xbb\xbf"
             "a slots=2\nb") == "a=2 b=1 ");
  CHECK(file("\xef\xbb\xbf# all\na") == "a=1 ");
  CHECK(file_error("a\n\xef\xbb\xbf"
                   "b")
            .starts_with("hosts:2:1: a host name cannot begin with"));
}

TEST_CASE("hosts: bytes that no text has, and very long words") {
  using namespace std::string_view_literals;
  constexpr const char* expected = ": a NUL byte is not expected here (write plain text, in UTF-8)";
  CHECK(file_error("a slots=2\nb\0 slots=2\n"sv) == std::string("hosts:2:2") + expected);
  CHECK(file_error("a\n# \0"sv) == std::string("hosts:2:3") + expected);
  CHECK(error_of([] { parse_discovered("\0a:2"sv, 1, "find"); }) == std::string("find:1:1") + expected);
  const std::string many(1'000'000, 'x');
  CHECK(file_error("a\n " + many) == "hosts:2:2: a host name has more than 253 characters");
  CHECK(file_error("a slots=" + many).size() < 200);
  CHECK(file_error("a " + many + "=1").size() < 200);
  CHECK(error_of([&] { parse_discovered(many, 1, "find"); }) == "find:1:1: a host name has more than 253 characters");
  CHECK(error_of([&] { parse_discovered("a:" + many, 1, "find"); }).size() < 200);
}

TEST_CASE("hosts: mistakes in a hostfile") {
  CHECK(file_error("a slots=2\nb slots=0") == "hosts:2:9: slots must be > 0 (write host:slots)");
  CHECK(file_error("a\n\n a slot=2") == "hosts:3:4: 'slot' is not a key (write host slots=n max_slots=n)");
  CHECK(file_error("a slots 2") == "hosts:1:9: = is missing after slots (write slots=n)");
  CHECK(file_error("a:2 slots=2") == "hosts:1:5: the slots are given twice");
  CHECK(file_error("a slots=4 max_slots=2") == "hosts:1:21: slots=4 is more than max_slots=2");
  CHECK(file_error("a, b") == "hosts:1:2: ',' is not expected here (write host slots=n)");
  CHECK(
      file_error("me@a slots=2") ==
      "hosts:1:3: '@' is not expected here (write host slots=n, and the user for ssh into ~/.ssh/config: Host, User)");
  CHECK(file_error("# nothing\n") == "hosts: names no host (write one a line: host slots=n)");
}

TEST_CASE("hosts: what a discovery script prints") {
  CHECK(text_of(parse_discovered("a:2\n\n b \nn[1-2]:3\r\n", 5, "find")) == "a=2 b=5 n1=3 n2=3 ");
  CHECK(error_of([] { parse_discovered("a:2\nb c\n", 1, "find"); }) ==
        "find:2:3: 'c' is not expected here (print one host a line: host:slots)");
  CHECK(error_of([] { parse_discovered("me@a:2\n", 1, "find"); }) ==
        "find:1:3: '@' is not expected here (write host:slots, and the user for ssh into ~/.ssh/config: Host, User)");
  CHECK(error_of([] { parse_discovered("\n", 1, "find"); }).starts_with("find: printed no host"));
}
