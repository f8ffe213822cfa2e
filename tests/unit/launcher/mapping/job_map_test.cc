#include "launcher/mapping/job_map.h"

#include <doctest/doctest.h>

#include "launcher/hosts/parse_hosts.h"

using namespace hvd::launcher;

namespace {

std::string text_of(const JobMap& map) {
  std::string out;
  for (const MappedRank& p : map.ranks)
    out += std::to_string(p.rank) + "@" + map.host_of(p.rank).name + " " + std::to_string(p.local_rank) + "/" +
           std::to_string(p.local_size) + " " + std::to_string(p.cross_rank) + "/" + std::to_string(p.cross_size) +
           "\n";
  return out;
}

}  // namespace

TEST_CASE("place: slots are filled in turn; cross ranks count the hosts that have the local rank") {
  CHECK(text_of(map_ranks(parse_hosts("a:1,b:3,c:2"), {false, false, false}, 5)) ==
        "0@a 0/1 0/3\n1@b 0/3 1/3\n2@b 1/3 0/1\n3@b 2/3 0/1\n4@c 0/1 2/3\n");
  CHECK(map_ranks(parse_hosts("a:2,b:2"), {false, false}, 2).hosts.size() == 1);
}

TEST_CASE("place: two names of this machine are one host") {
  const JobMap map = map_ranks(parse_hosts("localhost:1,b:1,self:2"), {true, false, true}, 4);
  CHECK(text_of(map) == "0@localhost 0/3 0/2\n1@localhost 1/3 0/1\n2@localhost 2/3 0/1\n3@b 0/1 1/2\n");
  CHECK_FALSE(map.all_local());
}
