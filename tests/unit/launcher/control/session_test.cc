#include "launcher/control/session.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "wire/channel/sim_channel.h"
#include "wire/messages/payload_ready.h"

using namespace hvd;
using namespace hvd::launcher;
using wire::Type;

namespace {

/// Two ranks on two hosts (or one). The test plays their guards.
struct World {
  wire::SimNet net;
  std::vector<wire::DeathRecord> deaths;
  std::string output;
  std::unique_ptr<Session> session;
  std::vector<std::unique_ptr<wire::Connection>> guards;

  explicit World(int size, wire::PayloadKind kind = wire::PayloadKind::command, std::string payload = {}) {
    std::vector<wire::RankManifest> manifests;
    for (int r = 0; r < size; ++r) {
      wire::RankManifest m;
      m.rank = r, m.size = size, m.local_rank = r, m.local_size = size, m.host = "far";
      m.payload.kind = kind;
      manifests.push_back(m);
    }
    session = std::make_unique<Session>(net.listen(), manifests, PayloadDelivery(std::move(payload), "/proc/1/fd/3"),
                                        [this](const JobEvent& event) { take(event); });
    for (int r = 0; r < size; ++r) guards.push_back(net.connect());
  }

  void take(const JobEvent& event) {
    if (const auto* e = std::get_if<RankEnded>(&event)) deaths.push_back(e->death);
    if (const auto* e = std::get_if<RankWrote>(&event))
      output += std::to_string(e->rank) + std::to_string(e->body.stream) + std::string(e->body.bytes) + ";";
  }
  void send(int guard, Type type, std::string body) {
    CHECK(guards[static_cast<std::size_t>(guard)]->send({static_cast<std::uint16_t>(type), std::move(body)}));
    session->pump({});
  }
  void hello(int guard, bool local) {
    send(guard, Type::hello, to_json(wire::Hello{1, guard, 100 + guard, "m", local, "v", 0}));
  }
  /// Returns the next message of this type, and skips pings.
  std::optional<std::string> next(int guard, Type type) {
    while (const auto f = guards[static_cast<std::size_t>(guard)]->receive())
      if (f->type == static_cast<std::uint16_t>(type)) return f->body;
    return std::nullopt;
  }
  void death(int guard, wire::Cause cause, int code) {
    wire::DeathRecord d;
    d.rank = guard, d.cause = cause, d.code = code;
    send(guard, Type::death, to_json(d));
    send(guard, Type::clean, "");
  }
};

}  // namespace

TEST_CASE("session: hello is answered with the manifest; death and clean end a rank; all are released together") {
  World w(2);
  w.hello(0, true);
  CHECK(w.session->in_stage(RankStage::absent) == std::vector<int>{1});
  CHECK(wire::manifest_from_json(w.next(0, Type::manifest).value()).rank == 0);
  w.hello(1, true);
  w.send(0, Type::output, "\1hi\n");
  CHECK(w.output == "01hi\n;");
  w.death(0, wire::Cause::finished, 0);
  CHECK_FALSE(w.next(0, Type::release));
  w.death(1, wire::Cause::exited, 3);
  CHECK(w.session->all_clean());
  CHECK(w.deaths.at(1).code == 3);
  CHECK(w.deaths.at(1).host == "far");
  w.session->release_all();
  CHECK(w.next(0, Type::release));
  CHECK(w.next(1, Type::release));
}

TEST_CASE("session: ranks of this machine read the pickle from us") {
  World w(2, wire::PayloadKind::pickle, "bytes");
  w.hello(0, true);
  const auto m = wire::manifest_from_json(w.next(0, Type::manifest).value());
  CHECK(m.payload.path == "/proc/1/fd/3");
  CHECK_FALSE(m.payload.deliver);
}

TEST_CASE("session: a remote host gets the pickle once, in pieces; its other ranks wait for it") {
  const std::string payload(wire::max_frame_bytes + 5, 'x');
  World w(2, wire::PayloadKind::pickle, payload);
  w.hello(1, false);
  CHECK_FALSE(w.next(1, Type::manifest));
  w.hello(0, false);
  CHECK(wire::manifest_from_json(w.next(0, Type::manifest).value()).payload.deliver);
  CHECK(w.next(0, Type::payload).value().size() == wire::max_frame_bytes);
  CHECK(w.next(0, Type::payload).value().size() == 5);
  CHECK(w.next(0, Type::payload).value().empty());
  w.send(0, Type::payload_ready, to_json(wire::PayloadReady{"/proc/7/fd/8"}));
  CHECK(wire::manifest_from_json(w.next(1, Type::manifest).value()).payload.path == "/proc/7/fd/8");
}

TEST_CASE("session: a guard that goes without a word has vanished; a stranger is refused") {
  World w(2);
  w.hello(0, true);
  w.hello(1, true);
  w.net.cut(1);
  w.session->tick();
  CHECK(w.deaths.at(0).cause == wire::Cause::vanished);
  CHECK(w.deaths.at(0).rank == 1);
  auto stranger = w.net.connect();
  stranger->send({static_cast<std::uint16_t>(Type::hello), to_json(wire::Hello{1, 0, 5, "m", true, "v", 0})});
  stranger->send({static_cast<std::uint16_t>(Type::output), "\1no\n"});
  w.session->pump({});
  CHECK(w.output.empty());
}

TEST_CASE("session: ranks wait for rank 0, whose guard holds the ports of the script's servers") {
  World w(3);
  w.session->wait_for_rank_0([&](const wire::Hello& rank_0) {
    std::vector<wire::RankManifest> all(3);
    for (int r = 0; r < 3; ++r) {
      wire::RankManifest& m = all[static_cast<std::size_t>(r)];
      m.rank = r, m.size = m.local_size = m.cross_size = 3;
      m.env["MASTER_PORT"] = std::to_string(rank_0.ports.at(0));
    }
    return all;
  });
  w.hello(1, false);
  CHECK_FALSE(w.next(1, Type::manifest));
  wire::Hello first{1, 0, 100, "m", false, "v", 0};
  first.ports = {40001, 40002};
  w.send(0, Type::hello, to_json(first));
  w.hello(2, false);
  for (int r = 0; r < 3; ++r) {
    const wire::RankManifest m = wire::manifest_from_json(w.next(r, Type::manifest).value());
    CHECK(m.rank == r);
    CHECK(m.env.at("MASTER_PORT") == "40001");
    CHECK_FALSE(w.next(r, Type::manifest));
  }
}

TEST_CASE("session: who comes after the stop is told to stop") {
  World w(2);
  w.hello(0, true);
  w.session->stop_all("why", 2, SIGHUP);
  const wire::StopRequest stop = wire::stop_request_from_json(w.next(0, Type::stop).value());
  CHECK(stop.grace_seconds == 2);
  CHECK(stop.signal == SIGHUP);
  w.hello(1, true);
  CHECK_FALSE(w.next(1, Type::manifest));
}

TEST_CASE("session: an environment that no message holds is refused with its longest variable") {
  wire::SimNet net;
  wire::RankManifest m;
  m.size = m.local_size = m.cross_size = 1;
  m.env = {{"A", std::string(1 << 20, 'x')}, {"LONGEST", std::string(5 << 20, 'x')}};
  Session session(net.listen(), {m}, PayloadDelivery("", ""), {});
  const auto guard = net.connect();
  CHECK(guard->send({static_cast<std::uint16_t>(Type::hello), to_json(wire::Hello{1, 0, 100, "m", true, "v", 0})}));
  try {
    session.pump({});
    FAIL("it was sent");
  } catch (const Error& e) {
    CHECK(std::string(e.what()).starts_with("the ranks' environment and arguments: need 614"));
    CHECK(e.hint == "unset what the ranks do not need; the longest is LONGEST, 5120 KiB");
  }
}
