/// Ranks that form a world: the messages of each rank, with deaths at any time.
#include "launcher/start/meeting_hub.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/error.h"

using namespace hvd;
using launcher::MeetingAnswer;
using launcher::MeetingHub;
using wire::MeetingMessage;

namespace meeting_hub_test {  // unity builds: other files have functions of these names
namespace {

using Kind = MeetingMessage::Kind;

const std::vector<int> two_hosts{0, 0, 1, 1};

MeetingMessage join(int rank, std::uint64_t token = 1, std::vector<std::int32_t> ranks = {}) {
  return {.kind = Kind::join,
          .rank = rank,
          .token = token,
          .ranks = std::move(ranks),
          .text = "words of " + std::to_string(rank)};
}

MeetingHub::Answers come(MeetingHub& hub, int rank, std::uint64_t token = 1, std::vector<std::int32_t> ranks = {}) {
  return hub.receive(two_hosts[static_cast<std::size_t>(rank)], join(rank, token, std::move(ranks)));
}

std::vector<int> ranks_of(const MeetingMessage& m) {
  std::vector<int> ranks;
  for (const auto& member : m.members) ranks.push_back(member.rank);
  return ranks;
}

}  // namespace

TEST_CASE("meeting hub: when the last rank has come, each host gets one message, with the texts of all ranks") {
  MeetingHub hub(two_hosts);
  for (const int rank : {3, 0, 2}) CHECK(come(hub, rank, 10 + static_cast<std::uint64_t>(rank)).empty());
  const auto answers = come(hub, 1, 11);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].hosts == std::vector<int>{0, 1});
  const MeetingMessage& m = answers[0].message;
  CHECK(m.kind == Kind::world);
  CHECK(m.epoch == 1);
  CHECK(ranks_of(m) == std::vector<int>{0, 1, 2, 3});
  for (const auto& member : m.members) {
    CHECK(member.host == two_hosts[static_cast<std::size_t>(member.rank)]);
    CHECK(member.token == 10 + static_cast<std::uint64_t>(member.rank));
    CHECK(member.text == "words of " + std::to_string(member.rank));
  }
}

TEST_CASE("meeting hub: some meet in an order of their own, others meanwhile, all of them later") {
  MeetingHub hub(two_hosts);
  CHECK(come(hub, 2, 1, {2, 0}).empty());
  CHECK(come(hub, 3, 1, {1, 3}).empty());
  const auto first = come(hub, 0, 1, {2, 0});
  REQUIRE(first.size() == 1);
  CHECK(ranks_of(first[0].message) == std::vector<int>{2, 0});
  CHECK(come(hub, 0, 2).empty());
  const auto second = come(hub, 1, 1, {1, 3});
  REQUIRE(second.size() == 1);
  CHECK(second[0].message.epoch == 2);
  for (const int rank : {1, 2}) CHECK(come(hub, rank, 2).empty());
  CHECK(come(hub, 3, 2)[0].message.epoch == 3);
}

TEST_CASE("meeting hub: nonsense is refused, and only to who says it") {
  MeetingHub hub(two_hosts);
  CHECK(come(hub, 0).empty());
  const std::pair<std::vector<std::int32_t>, const char*> wrong[] = {
      {{1, 4}, "there is no rank 4"},
      {{-1, 1}, "there is no rank -1"},
      {{1, 2, 1}, "rank 1 is given twice"},
      {{0, 2}, "rank 1 of the launch is not among the given ranks"},
  };
  for (const auto& [ranks, why] : wrong) {
    const auto answers = come(hub, 1, 5, ranks);
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].message.kind == Kind::refused);
    CHECK(answers[0].message.code == static_cast<int>(Code::usage));
    CHECK(ranks_of(answers[0].message) == std::vector<int>{1});
    CHECK(answers[0].message.text.find(why) != std::string::npos);
  }
  for (const int rank : {1, 2}) CHECK(come(hub, rank).empty());
  CHECK(come(hub, 3)[0].message.kind == Kind::world);
}

TEST_CASE("meeting hub: a daemon speaks for its own ranks only") {
  MeetingHub hub(two_hosts);
  for (const int rank : {0, 1, 2}) CHECK(come(hub, rank).empty());
  CHECK(hub.receive(0, join(3)).empty());
  CHECK(hub.receive(1, {.kind = Kind::withdraw, .rank = 0, .token = 1}).empty());
  for (const int rank : {-1, 4, 1 << 30}) CHECK(hub.receive(0, join(rank)).empty());
  for (const Kind kind : {Kind::world, Kind::refused}) CHECK(hub.receive(1, {.kind = kind, .rank = 3}).empty());
  CHECK(come(hub, 3)[0].message.kind == Kind::world);
}

TEST_CASE("meeting hub: who waits too long hears who is missing, and the others go on waiting") {
  MeetingHub hub(two_hosts);
  CHECK(come(hub, 0, 7).empty());
  CHECK(come(hub, 3, 1).empty());
  CHECK(hub.receive(0, {.kind = Kind::withdraw, .rank = 0, .token = 6}).empty());  // of an earlier call
  const auto answers = hub.receive(0, {.kind = Kind::withdraw, .rank = 0, .token = 7});
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].hosts == std::vector<int>{0});
  CHECK(answers[0].message.code == static_cast<int>(Code::timeout));
  CHECK(answers[0].message.text == "waited too long for 2 rank(s) to join, first rank 1");
  CHECK(hub.receive(0, {.kind = Kind::withdraw, .rank = 0, .token = 7}).empty());
  for (const int rank : {1, 2}) CHECK(come(hub, rank).empty());
  CHECK(come(hub, 0, 8)[0].message.members[0].token == 8);
}

TEST_CASE("meeting hub: a rank dies at each point of a meeting") {
  for (int victim = 0; victim < 4; ++victim)
    for (std::size_t come_before = 0; come_before <= 4; ++come_before) {
      MeetingHub hub(two_hosts);
      std::vector<int> told;
      const auto hear = [&](const MeetingHub::Answers& answers) {
        for (const MeetingAnswer& a : answers) {
          if (a.message.kind != Kind::refused) continue;
          CHECK(a.message.code == static_cast<int>(Code::peer_lost));
          CHECK(a.message.text == "rank " + std::to_string(victim) + " has died");
          for (const int rank : ranks_of(a.message)) told.push_back(rank);
        }
      };
      bool complete = false;
      for (std::size_t i = 0; i <= 4; ++i) {
        if (i == come_before) hear(hub.end(victim, "rank " + std::to_string(victim) + " has died"));
        if (i == 4 || (static_cast<int>(i) == victim && i >= come_before)) continue;
        const auto answers = come(hub, static_cast<int>(i));
        complete |= !answers.empty() && answers[0].message.kind == Kind::world;
        hear(answers);
      }
      std::sort(told.begin(), told.end());
      std::vector<int> others;
      for (int r = 0; r < 4; ++r)
        if (r != victim) others.push_back(r);
      CHECK(complete == (come_before == 4));
      CHECK(told == (complete ? std::vector<int>{} : others));
      CHECK(hub.end(victim, "again").empty());
    }
}

TEST_CASE("meeting hub: the invited are all; who waits and is not is refused") {
  MeetingHub hub(two_hosts);
  for (const int rank : {0, 1, 3}) CHECK(come(hub, rank).empty());
  CHECK(hub.end(2, "rank 2 has died").size() == 1);
  for (const int rank : {0, 1, 3}) CHECK(come(hub, rank, 2)[0].message.text == "rank 2 has died");
  CHECK(hub.invite({3, 0}).empty());
  CHECK(come(hub, 0, 3).empty());
  const auto out = come(hub, 1, 3);
  CHECK(out[0].message.text == "rank 1 of the launch is not among the given ranks");
  const auto world = come(hub, 3, 3);
  REQUIRE(world.size() == 1);
  CHECK(ranks_of(world[0].message) == std::vector<int>{3, 0});
  CHECK(come(hub, 0, 4).empty());
  const auto changed = hub.invite({0});
  REQUIRE(changed.size() == 1);
  CHECK(ranks_of(changed[0].message) == std::vector<int>{0});
  CHECK(come(hub, 0, 5)[0].message.kind == Kind::world);
}

TEST_CASE("meeting hub: a rank that dies revokes the world that it was in, and no other") {
  MeetingHub hub(two_hosts);
  CHECK(hub.revoke(1, "rank 1 has died").empty());  // in no world yet
  for (const int rank : {0, 1, 2}) CHECK(come(hub, rank).empty());
  CHECK(come(hub, 3).size() == 1);
  CHECK(come(hub, 0, 2, {0, 3}).empty());
  CHECK(come(hub, 3, 2, {0, 3})[0].message.epoch == 2);  // these ranks have left the first
  const auto answers = hub.revoke(1, "rank 1 has died");
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].hosts == std::vector<int>{1});
  const MeetingMessage& m = answers[0].message;
  CHECK(m.kind == Kind::revoked);
  CHECK(m.epoch == 1);
  CHECK(m.code == static_cast<int>(Code::peer_lost));
  CHECK(ranks_of(m) == std::vector<int>{2});
  CHECK(m.text == "rank 1 has died");
  CHECK(hub.revoke(1, "again").empty());
}

TEST_CASE("meeting hub: a new rank learns the expected world, and waits for no rank") {
  MeetingHub hub({0, 1});
  hub.hold_strangers();
  hub.add(1);
  const MeetingMessage asked{.kind = Kind::expect, .rank = 2, .token = 7};
  const auto answers = hub.tell_expected(asked, {0, 1, 2});
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].hosts == std::vector<int>{1});
  const MeetingMessage& m = answers[0].message;
  CHECK(m.kind == Kind::expected);
  CHECK(m.rank == 2);
  CHECK(m.ranks == std::vector<std::int32_t>{0, 1, 1});
  CHECK(ranks_of(m) == std::vector<int>{2});
  CHECK(m.members[0].token == 7);
  CHECK(hub.receive(0, join(0)).empty());
  CHECK(hub.receive(1, join(1)).size() == 1);  // the others meet without it
  CHECK(hub.dismiss(2).empty());
  const auto refused = hub.tell_expected(asked, {0, 1, 2});
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].message.kind == Kind::refused);
  CHECK(refused[0].message.text == wire::not_needed);
}

}  // namespace meeting_hub_test
