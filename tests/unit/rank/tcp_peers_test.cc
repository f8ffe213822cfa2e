/// The peers that do not answer, from the kernel's own table.
#include "rank/diagnostics/stacks/tcp_peers.h"

#include <doctest/doctest.h>

using namespace hvd::rank;

TEST_CASE("TCP peers: peers to which the kernel repeats itself, of these sockets") {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0\n"
      "   1: 0100004D:9C40 0302000A:1F91 01 00000040:00000000 01:00000190 00000005     0        0 12 2 0 100 0 0 10 0\n"
      "   2: 0100004D:9C41 0402000A:1F91 01 00000040:00000000 01:00000190 00000001     0        0 13 2 0 100 0 0 10 0\n"
      "   3: 0100004D:9C42 0502000A:1F91 01 00000040:00000000 01:00000190 00000009     0        0 99 2 0 100 0 0 10 0\n"
      "   4: 0100004D:9C43 0602000A:1F91 01 00000000:00000000 02:00000190 00000009     0        0 14 2 0 100 0 0 10 "
      "0\n";
  CHECK(unanswered_in(table, {"11", "12", "13", "14"}) == std::set<std::string>{"10.0.2.3"});
  const std::string six =
      "   1: 0000000000000000FFFF00000100007F:9C40 0000000000000000FFFF00000302000A:1F91 01 00000040:00000000 "
      "01:00000190 "
      "0000000A     0        0 12 2 0\n"
      "   2: B80D01200000000000000000 01000000:1 x 01 1:2 01:3 00000005 0 0 12\n"
      "   3: B80D0120000000000000000001000000:9C40 B80D0120000000000000000002000000:1F91 02 00000001:00000000 "
      "01:00000190 "
      "00000003     0        0 12 2 0\n";
  CHECK(unanswered_in(six, {"12"}) == std::set<std::string>{"10.0.2.3", "2001:db8::2"});
  CHECK(unanswered_in("", {"12"}).empty());
  CHECK(unanswered_in("a b c d e 01: zz h i 12\n\xff\n", {"12"}).empty());
}

TEST_CASE("TCP peers: of a process that is not there, none") { CHECK(unanswered(-1).empty()); }
