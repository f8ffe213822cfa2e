/// One connection over several networks (paths.h) over ZeroMQ's sockets, in loopback networks that the test cuts.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cable.h"
#include "channel_pair.h"
#include "wire/channel/paths.h"
#include "wire/channel/relayed_frame.h"
#include "wire/channel/transports.h"
#include "wire/messages/message.h"

using namespace hvd;
using namespace hvd::wire;
using namespace hvd::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint16_t type_number(Type type) { return static_cast<std::uint16_t>(type); }

/// The address of a host in network @p network.  hvdrun is host 1, the cables are host 2.
std::string host(std::size_t network, int host) {
  return "127.0." + std::to_string(network + 1) + "." + std::to_string(host);
}

/// hvdrun, which listens in several networks, and a cable in each.
struct CabledHvdrun {
  explicit CabledHvdrun(std::size_t networks) {
    std::vector<std::string> addresses;
    for (std::size_t i = 0; i < networks; ++i) addresses.push_back("tcp://" + host(i, 1) + ":*");
    listener = listen(addresses, server, client.public_key);
    for (std::size_t i = 0; i < networks; ++i)
      cables.push_back(std::make_unique<Cable>(host(i, 2), listener->addresses().at(i)));
  }

  std::unique_ptr<Connection> connect(std::size_t network, const KeyPair& keys, bool once = true) const {
    return wire::connect({cables.at(network)->address(), server.public_key, once}, keys);
  }

  KeyPair server = KeyPair::generate(), client = KeyPair::generate();
  std::unique_ptr<Listener> listener;
  std::vector<std::unique_ptr<Cable>> cables;
};

/// The body of frame @p i: its number, and padding of different lengths.
std::string body_of(int i) {
  const std::size_t lengths[] = {0, 7, 1000, 70000, 3, 300000, 64};
  return std::to_string(i) + std::string(lengths[static_cast<std::size_t>(i) % std::size(lengths)], 'x');
}

/// Frames in one direction.
struct FrameCount {
  int sent = 0, to_send = 0, received = 0;
  bool is_in_order = true;

  void take(const std::string& body, const std::string& expected) {
    is_in_order &= body == expected;
    ++received;
  }
  bool is_over() const { return received >= to_send; }
};

/// hvdrun, and a daemon with a path through each network.
struct CabledDaemon : CabledHvdrun {
  explicit CabledDaemon(std::size_t networks = 2, std::string (*frames)(int) = body_of)
      : CabledHvdrun(networks), body(frames) {
    std::vector<OpenPath> paths;
    for (std::size_t i = 0; i < networks; ++i)
      paths.push_back({connect(i, client, i > 0), listener->addresses().at(i)});  // as hvdrun_connection.cc
    REQUIRE(until([&] { return paths[0].connection->connected(); }));
    daemon = over_paths(std::move(paths));
    CHECK(exchange(1, 1));
    CHECK(until([&] { return !listener->awaits_paths(); }));
  }

  bool until(const std::function<bool()>& done, std::chrono::seconds limit = 60s) {
    return eventually(
        [&] {
          turn();
          return done();
        },
        limit);
  }

  /// Lets both ends send until their queues are full, and receive all frames that have arrived.
  void turn() {
    if (!daemon) return;
    turn_daemon();
    turn_hvdrun();
  }
  void turn_daemon() {
    while (up.sent < up.to_send && daemon->send({7, body(up.sent)})) ++up.sent;
    while (auto f = daemon->receive()) down.take(f->body, body(down.received));
  }
  /// Counts only frames of the first peer. ZeroMQ may reconnect a lost path as a new, unnamed peer and resend its
  /// queue.
  void turn_hvdrun() {
    while (auto f = listener->receive()) {
      if (peers.empty()) peers.push_back(f->from);
      if (f->from == peers[0]) up.take(f->frame.body, body(up.received));
    }
    try {
      while (!peers.empty() && gone.empty() && down.sent < down.to_send &&
             listener->send(peers[0], {7, body(down.sent)}))
        ++down.sent;
    } catch (const Error& e) { CHECK(e.code == Code::peer_lost); }
    while (auto peer = listener->gone())
      if (peers.empty() || *peer == peers[0]) gone.push_back(*peer);
    while (auto move = listener->moved()) moves.push_back(*move);
  }

  /// More frames in each direction.  Returns true once all have come, in order.
  bool exchange(int ups, int downs) {
    up.to_send += ups;
    down.to_send += downs;
    return until([&] { return up.is_over() && down.is_over(); }) && is_in_order();
  }
  bool is_in_order() const {
    return up.is_in_order && down.is_in_order && up.received == up.to_send && down.received == down.to_send;
  }
  /// The network of the path in use, as hvdrun sees it.
  std::size_t used() const {
    const std::string address = moves.empty() ? listener->addresses()[0] : moves.back().to;
    const auto all = listener->addresses();
    return static_cast<std::size_t>(std::find(all.begin(), all.end(), address) - all.begin());
  }

  std::string (*body)(int);
  std::unique_ptr<Connection> daemon;
  FrameCount up, down;
  std::vector<PeerId> peers, gone;
  std::vector<Listener::Move> moves;
};

std::string path_body(const std::string& name, int at, int all, const std::string& address) {
  return name + static_cast<char>(at) + static_cast<char>(all) + address;
}

/// A daemon whose path frames the test writes itself: two paths claim the same name.
struct ForgedPaths : CabledHvdrun {
  ForgedPaths() : CabledHvdrun(2) {
    for (const int i : {0, 1}) {
      paths.push_back(connect(static_cast<std::size_t>(i), client));
      paths.back()->send({type_number(Type::path), path_body(name, i, 2, "tcp://" + std::to_string(i))});
    }
    paths[0]->send({7, "first"});
    REQUIRE(until([&] { return !frames.empty() && !listener->awaits_paths(); }));
  }

  bool until(const std::function<bool()>& done, std::chrono::milliseconds limit = 30s) {
    return eventually(
        [&] {
          while (auto f = listener->receive()) frames.push_back(*f);
          while (auto peer = listener->gone()) gone.push_back(*peer);
          return done();
        },
        limit);
  }
  /// The next frame that a path gets.
  std::optional<Frame> answer(Connection& path) {
    std::optional<Frame> frame;
    until([&] { return (frame = path.receive()) && frame->type != type_number(Type::ping); });
    return frame;
  }

  const std::string name = std::string(path_name_letters, 'n');
  std::vector<std::unique_ptr<Connection>> paths;
  std::deque<Listener::PeerFrame> frames;
  std::vector<PeerId> gone;
};

}  // namespace

TEST_CASE("path sockets: frames that are lost amid traffic both ways arrive once, in order") {
  CabledDaemon n(3);
  for (std::size_t lost = 0; lost < 2; ++lost) {
    CHECK(n.exchange(40, 25));
    n.up.to_send += 150;
    n.down.to_send += 170;
    for (int i = 0; i < 3 + static_cast<int>(lost); ++i) n.turn();
    const std::size_t used = n.used();
    n.cables[used]->hold();
    for (int i = 0; i < 5; ++i) n.turn();
    n.cables[used]->cut();
    CHECK(n.exchange(30, 30));
    REQUIRE(n.moves.size() == lost + 1);
    CHECK(n.moves[lost].from == n.listener->addresses()[used]);
    CHECK(n.moves[lost].to == n.listener->addresses()[n.used()]);
    CHECK(n.moves[lost].from != n.moves[lost].to);
    CHECK(n.daemon->spans_networks());
  }
  CHECK(n.gone.empty());
}

TEST_CASE("path sockets: either end may be the first that notices the loss") {
  for (const bool hvdrun_first : {true, false}) {
    CAPTURE(hvdrun_first);
    CabledDaemon n;
    n.up.to_send += 50;
    n.down.to_send += 50;
    n.turn();
    n.cables[0]->cut();
    for (int i = 0; i < 100; ++i) {
      if (hvdrun_first)
        n.turn_hvdrun();
      else
        n.turn_daemon();
      std::this_thread::sleep_for(1ms);
    }
    CHECK(n.exchange(10, 10));
    CHECK(n.moves.size() == 1);
    CHECK(n.gone.empty());
  }
}

TEST_CASE("path sockets: a daemon that sleeps while the first path ends and is connected again moves all the same") {
  CabledDaemon n;
  n.cables[0]->cut();
  std::this_thread::sleep_for(300ms);  // ZeroMQ's I/O thread connects again through the same network
  CHECK(n.exchange(20, 20));
  CHECK(n.moves.size() == 1);
  CHECK(n.gone.empty());
}

TEST_CASE("path sockets: the end of all paths is the end of the peer") {
  CabledDaemon n;
  n.cables[0]->cut();
  CHECK(n.exchange(5, 5));
  n.up.to_send += 20;
  n.turn();
  n.cables[1]->cut();
  CHECK(n.until([&] { return n.daemon->lost_for().has_value() && !n.gone.empty(); }));
  CHECK(n.gone == n.peers);
  CHECK(n.listener->lost_networks(n.peers[0]) == n.listener->addresses());
  CHECK_FALSE(n.daemon->spans_networks());
  CHECK_THROWS_AS(n.listener->send(n.peers[0], {7, "late"}), Error);
  std::this_thread::sleep_for(1200ms);  // the listener asks for a second whether a peer is gone
  n.turn();
  CHECK(n.gone.size() == 1);
  CHECK(n.moves.size() == 1);
}

TEST_CASE("path sockets: the end of a path that is not in use is no move") {
  CabledDaemon n;
  n.cables[1]->cut();
  CHECK(n.until([&] { return !n.daemon->spans_networks(); }));
  CHECK(n.exchange(20, 20));
  CHECK(n.moves.empty());
  n.cables[0]->cut();
  CHECK(n.until([&] { return n.daemon->lost_for().has_value() && !n.gone.empty(); }));
  CHECK(n.gone == n.peers);
}

TEST_CASE("path sockets: frames of the longest kind, each longer than the window of unconfirmed bytes") {
  const auto longest = [](int i) { return std::to_string(i) + std::string(max_frame_bytes - 1, 'x'); };
  const auto relayed_longest = [](int i) {
    return relayed(3, {7, std::to_string(i) + std::string(max_frame_bytes - 1, 'x')}).body;
  };
  CabledHvdrun hvdrun(2);
  std::vector<OpenPath> paths;
  for (const std::size_t i : {0u, 1u})
    paths.push_back({hvdrun.connect(i, hvdrun.client), "tcp://" + std::to_string(i)});
  REQUIRE(eventually([&] { return paths[0].connection->connected(); }));
  const auto daemon = over_paths(std::move(paths));
  int up = 0, down = 0, sent_up = 0, sent_down = 0;
  std::optional<PeerId> guard;
  CHECK(eventually(
      [&] {
        if (up == 3) hvdrun.cables[0]->cut();
        if (sent_up < 8 && daemon->send({type_number(Type::relayed), relayed_longest(sent_up)})) ++sent_up;
        if (guard && sent_down < 8 && hvdrun.listener->send(*guard, {7, longest(sent_down)})) ++sent_down;
        while (auto f = daemon->receive()) CHECK(f->body == relayed_longest(down++));
        while (auto f = hvdrun.listener->receive()) {
          guard = f->from;
          CHECK(f->frame.body == longest(up++));
        }
        CHECK_FALSE(hvdrun.listener->gone());
        return up == 8 && down == 8;
      },
      60s));
  CHECK(hvdrun.listener->moved());
  CHECK_FALSE(hvdrun.listener->moved());
}

TEST_CASE("path sockets: a daemon that confirms frames which it was not sent is lost") {
  for (const bool is_move : {false, true}) {
    CAPTURE(is_move);
    ForgedPaths f;
    const PeerId peer = f.frames[0].from;
    CHECK(f.listener->send(peer, {8, "one"}));
    f.paths[is_move ? 1 : 0]->send({type_number(is_move ? Type::moved : Type::confirmed), path_count_body(2)});
    CHECK(f.until([&] { return !f.gone.empty(); }));
    CHECK(f.gone == std::vector<PeerId>{peer});
    CHECK_FALSE(f.listener->moved());
    CHECK_THROWS_AS(f.listener->send(peer, {8, "two"}), Error);
    Connection& told = *f.paths[is_move ? 1 : 0];
    if (!is_move) CHECK(f.answer(told)->body == "one");
    const auto refusal = f.answer(told);
    REQUIRE(refusal);
    CHECK(refusal->type == type_number(Type::moved));
    CHECK(refusal->body == path_count_body(refused_move));
  }
}

TEST_CASE("path sockets: a listener that confirms frames which it was not sent is left") {
  const KeyPair server = KeyPair::generate(), client = KeyPair::generate();
  const auto liar = listen_on_network({"tcp://" + host(0, 1) + ":*"}, server, client.public_key);
  std::vector<OpenPath> paths;
  paths.push_back({wire::connect({liar->addresses()[0], server.public_key, true}, client), "tcp://a:1"});
  const auto daemon = over_paths(std::move(paths));
  CHECK(daemon->send({7, "0"}));
  std::optional<Listener::PeerFrame> got;
  CHECK(eventually([&] { return (got = liar->receive()).has_value(); }));
  CHECK(liar->send(got->from, {type_number(Type::confirmed), path_count_body(5)}));
  CHECK(eventually([&] {
    CHECK_FALSE(daemon->receive());
    return daemon->lost_for().has_value();
  }));
  CHECK_FALSE(daemon->send({7, "1"}));
}

TEST_CASE("path sockets: a stranger opens and moves nothing") {
  ForgedPaths f;
  const PeerId peer = f.frames[0].from;
  const auto stranger = f.connect(0, KeyPair::generate());
  stranger->send({type_number(Type::path), path_body(f.name, 1, 2, "tcp://stranger")});
  stranger->send({type_number(Type::path), path_body(std::string(path_name_letters, 's'), 0, 2, "tcp://stranger")});
  stranger->send({type_number(Type::moved), path_count_body(0)});
  // A peer of this job that knows the name of no connection.
  const auto other = f.connect(1, f.client);
  other->send({type_number(Type::moved), path_count_body(0)});
  f.paths[0]->send({7, "second"});
  CHECK(f.until([&] { return f.frames.size() == 3; }));
  CHECK_FALSE(f.until([&] { return !f.gone.empty() || f.listener->moved() || f.listener->awaits_paths(); }, 500ms));
  CHECK_FALSE(stranger->connected());
  for (const auto& frame : f.frames) CHECK((frame.from == peer) == (frame.frame.type == 7));
  CHECK(f.listener->send(peer, {8, "to the daemon"}));
  CHECK(f.answer(*f.paths[0])->body == "to the daemon");
}
