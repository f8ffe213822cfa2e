#include "launcher/start/daemon_links.h"

#include <doctest/doctest.h>

#include <cstring>

#include "launcher/control/session.h"
#include "wire/channel/sim_channel.h"
#include "wire/messages/message.h"

using namespace hvd;
using namespace hvd::launcher;
using wire::PmixMessage;
using wire::Type;

namespace {

/// Two hosts with a rank each. The test plays a daemon and a guard on each host.
struct Hosts {
  wire::SimNet net;
  std::unique_ptr<Session> session;
  std::vector<std::unique_ptr<wire::Connection>> daemons, guards;
  std::vector<wire::DeathRecord> deaths;
  std::vector<std::string> notes;
  std::vector<GuardContinued> continued;
  int broken_host = -1;

  Hosts() {
    std::vector<wire::RankManifest> ranks(2);
    for (int r = 0; r < 2; ++r) ranks[static_cast<std::size_t>(r)].rank = r;
    const EventSink events = [this](const JobEvent& event) { take(event); };
    session = std::make_unique<Session>(net.listen(), ranks, PayloadDelivery("", ""), events);
    wire::DaemonManifest all;
    all.pmix_namespace = "secret";
    all.hosts = {{"a", {0}}, {"b", {1}}};
    session->serve(all);
    for (int h = 0; h < 2; ++h) {
      daemons.push_back(net.connect());
      guards.push_back(net.connect());
    }
  }
  void take(const JobEvent& event) {
    if (const auto* e = std::get_if<RankEnded>(&event)) deaths.push_back(e->death);
    if (const auto* e = std::get_if<SessionNote>(&event)) notes.push_back(e->line);
    if (const auto* e = std::get_if<RankAborted>(&event)) session->abort(e->rank, e->status, "aborted");
    if (const auto* e = std::get_if<RankSpawned>(&event)) session->abort(e->rank, 2, "spawned");
    if (const auto* e = std::get_if<GuardEnded>(&event)) session->vanish(e->rank, "killed", e->status);
    if (const auto* e = std::get_if<GuardContinued>(&event)) continued.push_back(*e);
    if (const auto* e = std::get_if<PmixMissing>(&event)) broken_host = e->host;
  }
  void hello(wire::Connection& from, int rank, bool daemon) {
    wire::Hello h;
    h.rank = rank;
    h.local = true;
    h.daemon = daemon;
    send(from, Type::hello, to_json(h));
  }
  void send(wire::Connection& from, Type type, std::string body) {
    CHECK(from.send({static_cast<std::uint16_t>(type), std::move(body)}));
    session->pump({});
  }
  void say(int host, const PmixMessage& message) {
    send(*daemons[static_cast<std::size_t>(host)], Type::pmix, encode(message));
  }
  std::optional<PmixMessage> heard(int host) {
    while (const auto f = daemons[static_cast<std::size_t>(host)]->receive())
      if (f->type == static_cast<std::uint16_t>(Type::pmix)) return wire::decode_pmix_message(f->body);
    return std::nullopt;
  }
};

}  // namespace

TEST_CASE("daemon links: each daemon gets the manifest, once all have come") {
  Hosts h;
  h.hello(*h.daemons[1], 1, true);
  CHECK_FALSE(h.daemons[1]->receive());
  CHECK_FALSE(h.session->daemons_have_come());
  const auto another = h.net.connect();
  h.hello(*another, 1, true);
  h.hello(*another, 7, true);
  CHECK(h.notes.size() == 2);
  h.hello(*h.daemons[0], 0, true);
  for (const int host : {0, 1}) {
    const auto frame = h.daemons[static_cast<std::size_t>(host)]->receive();
    REQUIRE(frame);
    const wire::DaemonManifest got = wire::daemon_manifest_from_json(frame->body);
    CHECK(got.hosts.size() == 2);
    CHECK(got.pmix_namespace == "secret");
  }
  CHECK(h.session->in_stage(RankStage::absent).size() == 2);  // a daemon is no rank
}

TEST_CASE("daemon links: a host more; who is to be started there before its daemon has come is, once it has") {
  Hosts h;
  for (int i = 0; i < 2; ++i) h.hello(*h.daemons[static_cast<std::size_t>(i)], i, true);
  h.session->become_elastic();
  CHECK(h.session->daemons().add_host("c") == 2);
  h.session->start_rank({.rank = 2}, 2, true);
  h.session->start_rank({.rank = 3}, 2, false);
  const auto fresh = h.net.connect();
  h.hello(*fresh, 2, true);
  h.session->pump({});
  std::vector<int> started;
  bool has_manifest = false;
  while (const auto frame = fresh->receive()) {
    has_manifest |= frame->type == static_cast<std::uint16_t>(Type::daemon_manifest);
    if (frame->type != static_cast<std::uint16_t>(Type::start_rank)) continue;
    CHECK(has_manifest);
    std::int32_t number = -1;
    REQUIRE(frame->body.size() == sizeof number);
    std::memcpy(&number, frame->body.data(), sizeof number);
    started.push_back(number);
  }
  CHECK(started == std::vector<int>{3});  // the daemon begins with the other one
  h.session->daemons().give_up(2);
  CHECK_FALSE(h.session->daemons().is_gone(2));  // it has come
}

TEST_CASE("daemon links: a daemon that was given up is refused when it comes") {
  Hosts h;
  for (int i = 0; i < 2; ++i) h.hello(*h.daemons[static_cast<std::size_t>(i)], i, true);
  h.session->become_elastic();
  h.session->daemons().add_host("c");
  h.session->start_rank({.rank = 2}, 2, true);
  h.session->daemons().give_up(2);
  CHECK(h.session->daemons().is_gone(2));
  const auto late = h.net.connect();
  h.hello(*late, 2, true);
  CHECK(h.notes.size() == 1);
  CHECK_FALSE(late->receive());
}

TEST_CASE("daemon links: a fence goes through; a host that is gone fails it") {
  Hosts h;
  for (int i = 0; i < 2; ++i) h.hello(*h.daemons[static_cast<std::size_t>(i)], i, true);
  h.say(0, {.kind = PmixMessage::Kind::fence, .token = 5, .data = "zero"});
  CHECK_FALSE(h.heard(0));
  h.say(1, {.kind = PmixMessage::Kind::fence, .token = 9, .data = "one"});
  CHECK(h.heard(0).value().data == "zeroone");
  CHECK(h.heard(1).value().token == 9);

  h.say(0, {.kind = PmixMessage::Kind::fence, .token = 6, .data = "zero"});
  h.daemons[1].reset();
  h.session->tick();
  CHECK(h.heard(0).value().failed);
}

TEST_CASE("daemon links: MPI_Abort ends that rank, whose record has its status then") {
  Hosts h;
  for (int i = 0; i < 2; ++i) h.hello(*h.daemons[static_cast<std::size_t>(i)], i, true);
  h.hello(*h.guards[1], 1, false);
  h.say(0, {.kind = PmixMessage::Kind::abort, .rank = 1, .status = 7});  // the rank is not on its host
  h.say(1, {.kind = PmixMessage::Kind::abort, .rank = 1, .status = 7});
  bool stopped = false;
  while (const auto f = h.guards[1]->receive()) stopped |= f->type == static_cast<std::uint16_t>(Type::stop);
  CHECK(stopped);
  wire::DeathRecord d;
  d.rank = 1;
  d.cause = wire::Cause::stopped;
  h.send(*h.guards[1], Type::death, to_json(d));
  REQUIRE(h.deaths.size() == 1);
  CHECK(h.deaths[0].cause == wire::Cause::exited);
  CHECK(h.deaths[0].code == 7);
  CHECK(h.deaths[0].text == "aborted");
}

TEST_CASE("daemon links: a guard that ends before it could come is missed") {
  Hosts h;
  h.hello(*h.daemons[1], 1, true);
  h.hello(*h.guards[0], 0, false);
  h.say(1, {.kind = PmixMessage::Kind::guard_ended, .rank = 0, .status = 9});  // the rank is not on its host
  h.say(1, {.kind = PmixMessage::Kind::guard_ended, .rank = 1, .status = 9});
  REQUIRE(h.deaths.size() == 1);
  CHECK(h.deaths[0].rank == 1);
  CHECK(h.deaths[0].code == 9);
  h.hello(*h.guards[1], 1, false);  // its last message comes late
  CHECK(h.session->in_stage(RankStage::clean) == std::vector<int>{1});
}

TEST_CASE("daemon links: a process that was stopped is told with its host and rank") {
  Hosts h;
  h.hello(*h.daemons[1], 1, true);
  h.say(1, {.kind = PmixMessage::Kind::continued, .rank = 0, .status = 70});  // the rank is not on its host
  h.say(1, {.kind = PmixMessage::Kind::continued, .rank = 1, .status = 71});
  h.say(1, {.kind = PmixMessage::Kind::continued, .rank = -1, .status = 72});
  REQUIRE(h.continued.size() == 2);
  CHECK(h.continued[0].host == 1);
  CHECK(h.continued[0].rank == 1);
  CHECK(h.continued[0].pid == 71);
  CHECK(h.continued[1].rank == -1);
}

TEST_CASE("daemon links: a server that does not start is told with its host") {
  Hosts h;
  h.hello(*h.daemons[1], 1, true);
  h.say(1, {.kind = PmixMessage::Kind::broken, .rank = 1, .data = "no library"});
  CHECK(h.broken_host == 1);
  h.hello(*h.daemons[0], 0, true);
  h.say(0, {.kind = PmixMessage::Kind::fence, .token = 5, .data = "zero"});
  CHECK(h.heard(0).value().failed);  // at once, without the other host's answer
}
