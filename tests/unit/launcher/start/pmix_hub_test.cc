/// PMIx's messages between hosts: their receivers, their order, and the loss of a host.
#include "launcher/start/pmix_hub.h"

#include <doctest/doctest.h>

#include "base/error.h"

using hvd::launcher::PmixHub;
using hvd::wire::PmixMessage;
using Kind = PmixMessage::Kind;

namespace {

const std::vector<int> two_hosts{0, 0, 1, 1};

PmixMessage fence(std::uint64_t token, std::string data, std::vector<std::int32_t> ranks = {}) {
  return {.kind = Kind::fence, .token = token, .ranks = std::move(ranks), .data = std::move(data)};
}

}  // namespace

TEST_CASE("a fence ends when all hosts have come, and all get the same") {
  PmixHub hub(two_hosts, 2);
  CHECK(hub.receive(1, fence(7, "b")).empty());
  const auto out = hub.receive(0, fence(3, "a"));
  REQUIRE(out.size() == 2);
  CHECK(out[0].first == 0);
  CHECK(out[0].second.token == 3);
  CHECK(out[1].second.token == 7);
  for (const auto& [host, message] : out) {
    CHECK(message.kind == Kind::fence_data);
    CHECK_FALSE(message.failed);
    CHECK(message.data == "ab");
  }
}

TEST_CASE("fences of the same ranks follow each other, also where one host is ahead") {
  PmixHub hub(two_hosts, 2);
  CHECK(hub.receive(0, fence(1, "a1")).empty());
  CHECK(hub.receive(0, fence(2, "a2")).empty());
  CHECK(hub.receive(1, fence(1, "b1"))[0].second.data == "a1b1");
  const auto second = hub.receive(1, fence(2, "b2"));
  CHECK(second[0].second.data == "a2b2");
  CHECK(second[0].second.token == 2);
}

TEST_CASE("a fence of some ranks is for their hosts alone, and apart from others") {
  PmixHub hub({0, 1, 2}, 3);
  CHECK(hub.receive(0, fence(1, "a", {0, 2})).empty());
  CHECK(hub.receive(0, fence(2, "A")).empty());
  const auto out = hub.receive(2, fence(9, "c", {0, 2}));
  REQUIRE(out.size() == 2);
  CHECK(out[1].first == 2);
  CHECK(out[1].second.data == "ac");
}

TEST_CASE("nonsense is refused: ranks that are not there, a host that has no part") {
  PmixHub hub(two_hosts, 2);
  CHECK(hub.receive(0, fence(1, "", {4})).at(0).second.failed);
  CHECK(hub.receive(0, fence(1, "", {-2})).at(0).second.failed);
  CHECK(hub.receive(0, fence(1, "", {2, 3})).at(0).second.failed);
  CHECK(hub.receive(0, {.kind = Kind::request, .rank = 9, .token = 5}).at(0).second.failed);
  CHECK(hub.receive(0, {.kind = Kind::published, .token = 5}).empty());
}

TEST_CASE("a request goes to the rank's host, and the reply comes back to who asked") {
  PmixHub hub(two_hosts, 2);
  const auto asked = hub.receive(0, {.kind = Kind::request, .rank = 3, .token = 8});
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].first == 1);
  CHECK(asked[0].second.kind == Kind::ask);
  CHECK(asked[0].second.rank == 3);
  // Another host cannot answer it.
  CHECK(hub.receive(0, {.kind = Kind::published, .token = asked[0].second.token, .data = "no"}).empty());
  const auto reply = hub.receive(1, {.kind = Kind::published, .token = asked[0].second.token, .data = "yes"});
  REQUIRE(reply.size() == 1);
  CHECK(reply[0].first == 0);
  CHECK(reply[0].second.token == 8);
  CHECK(reply[0].second.data == "yes");
  CHECK(hub.receive(1, {.kind = Kind::published, .token = asked[0].second.token}).empty());
}

TEST_CASE("when a host is lost, no other host waits for it") {
  PmixHub hub({0, 1, 2}, 3);
  hub.receive(0, fence(1, "a"));
  const auto asked = hub.receive(2, {.kind = Kind::request, .rank = 1, .token = 4});
  REQUIRE(asked.size() == 1);
  const auto told = hub.lose(1);
  REQUIRE(told.size() == 2);
  for (const auto& [host, message] : told) CHECK(message.failed);
  const auto late = hub.receive(2, fence(6, "c"));  // of the same fence
  REQUIRE(late.size() == 1);
  CHECK(late[0].first == 2);
  CHECK(late[0].second.failed);
  CHECK(hub.receive(0, fence(2, "a2")).at(0).second.failed);
}

TEST_CASE("a message survives its encoding; pieces of one do not pass") {
  const PmixMessage m{
      .kind = Kind::fence, .rank = 3, .status = -1, .token = 1ull << 40, .ranks = {1, 5}, .data = "x\0y"};
  const std::string bytes = hvd::wire::encode(m);
  const PmixMessage back = hvd::wire::decode_pmix_message(bytes);
  CHECK(back.kind == m.kind);
  CHECK(back.status == -1);
  CHECK(back.token == m.token);
  CHECK(back.ranks == m.ranks);
  CHECK(back.data == m.data);
  for (std::size_t n = 0; n < 24 + 8; ++n)
    CHECK_THROWS_AS(hvd::wire::decode_pmix_message(bytes.substr(0, n)), hvd::Error);
  std::string odd = bytes;
  odd[0] = 0;
  CHECK_THROWS_AS(hvd::wire::decode_pmix_message(odd), hvd::Error);
}
