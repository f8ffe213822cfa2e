/// One connection over several networks: each frame arrives once, in order, when any path is lost.
#include "wire/channel/paths.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "wire/channel/sim_channel.h"
#include "wire/channel/unconfirmed_frames.h"
#include "wire/messages/message.h"

using namespace hvd;
using namespace hvd::wire;

namespace {

constexpr std::uint16_t number(Type type) { return static_cast<std::uint16_t>(type); }

/// A daemon with paths over simulated networks, and hvdrun.
struct Networks {
  explicit Networks(std::size_t paths = 2, std::size_t queue_frames = 64)
      : net(queue_frames), listener(with_paths(net.listen())) {
    std::vector<OpenPath> open;
    for (std::size_t i = 0; i < paths; ++i) open.push_back({net.connect(), "tcp://10.0." + std::to_string(i) + ".1:7"});
    daemon = over_paths(std::move(open));
    turn();
  }

  /// Serves both ends, and records the arrived frames, the new peers and the lost peers.
  void turn() {
    for (int i = 0; i < 6; ++i) {
      while (auto f = daemon->receive()) at_daemon.push_back(std::stoi(f->body));
      while (auto f = listener->receive()) {
        peers.push_back(f->from);
        at_hvdrun.push_back(std::stoi(f->frame.body));
      }
      while (auto peer = listener->gone()) gone.push_back(*peer);
      while (auto move = listener->moved()) moves.push_back(*move);
    }
  }

  bool up() { return daemon->send({7, std::to_string(next_up)}) && ++next_up; }
  bool down() { return listener->send(peers.at(0), {7, std::to_string(next_down)}) && ++next_down; }

  SimNet net;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Connection> daemon;
  int next_up = 0, next_down = 0;
  std::vector<int> at_daemon, at_hvdrun;
  std::vector<PeerId> peers, gone;
  std::vector<Listener::Move> moves;
};

std::vector<int> first(int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

}  // namespace

TEST_CASE("kept frames: confirmed ones are dropped; the others are repeated after a move") {
  UnconfirmedFrames kept;
  for (int i = 0; i < 5; ++i) kept.add({7, std::to_string(i)});
  CHECK(kept.next_to_repeat() == nullptr);
  CHECK(kept.confirm(2));
  CHECK(kept.confirm(2));
  CHECK_FALSE(kept.confirm(1));
  CHECK_FALSE(kept.confirm(6));
  CHECK(kept.resume(3));
  REQUIRE(kept.next_to_repeat());
  CHECK(kept.next_to_repeat()->body == "3");
  kept.repeated();
  CHECK_FALSE(kept.confirm(5));  // frame 4 is not sent yet
  CHECK(kept.confirm(4));
  CHECK(kept.next_to_repeat()->body == "4");
  CHECK_FALSE(kept.resume(refused_move));
}

TEST_CASE("kept frames: no more than 4 MiB stay unconfirmed; a confirmation is owed in time") {
  UnconfirmedFrames sender, receiver;
  const Frame frame{7, std::string(64u << 10, 'x')};
  int sent = 0;
  for (; !sender.is_full(); ++sent) {
    sender.add(frame);
    receiver.count_received(frame);
  }
  CHECK(sent == 64);
  CHECK(receiver.owes_confirmation());
  CHECK(sender.confirm(receiver.received()));
  receiver.has_confirmed();
  CHECK_FALSE(sender.is_full());
  CHECK_FALSE(receiver.owes_confirmation());
}

TEST_CASE("paths: frames use the first path, and no path is awaited any more") {
  Networks n;
  CHECK_FALSE(n.listener->awaits_paths());
  CHECK(n.up());
  n.turn();
  CHECK(n.down());
  n.turn();
  CHECK(n.at_hvdrun == first(1));
  CHECK(n.at_daemon == first(1));
  CHECK(n.daemon->spans_networks());
  CHECK(n.moves.empty());
}

TEST_CASE("paths: a path is awaited until it has come") {
  SimNet net;
  const auto listener = with_paths(net.listen());
  const auto one = net.connect(), two = net.connect();
  const std::string name(path_name_letters, 'n');
  CHECK(one->send({number(Type::path), name + '\0' + '\2' + "tcp://a:1"}));
  CHECK_FALSE(listener->receive());
  CHECK(listener->awaits_paths());
  CHECK(two->send({number(Type::path), name + '\1' + '\2' + "tcp://b:1"}));
  CHECK_FALSE(listener->receive());
  CHECK_FALSE(listener->awaits_paths());
}

TEST_CASE("paths: a connection without further paths is passed on") {
  SimNet net;
  const auto listener = with_paths(net.listen());
  const auto guard = net.connect();
  CHECK(guard->send({7, "hello"}));
  const auto got = listener->receive();
  REQUIRE(got);
  CHECK(listener->send(got->from, {8, "answer"}));
  CHECK(guard->receive()->body == "answer");
  net.cut(0);
  CHECK(listener->gone() == got->from);
}

TEST_CASE("paths: frames that were lost on the way arrive once, in order") {
  for (const bool daemon_first : {true, false}) {
    Networks n(3);
    CHECK(n.up());
    n.turn();
    for (int i = 0; i < 3; ++i) CHECK((n.up() && n.down()));
    n.turn();  // all arrive, and nothing is confirmed
    for (int i = 0; i < 3; ++i) CHECK((n.up() && n.down()));
    n.net.cut(0, true);
    if (daemon_first) static_cast<void>(n.daemon->receive());
    n.turn();
    CHECK(n.at_hvdrun == first(7));
    CHECK(n.at_daemon == first(6));
    CHECK((n.up() && n.down()));
    n.turn();
    n.net.cut(1, true);
    CHECK_FALSE(n.daemon->lost_for());
    n.turn();
    CHECK((n.up() && n.down()));
    n.turn();
    CHECK(n.at_hvdrun == first(9));
    CHECK(n.at_daemon == first(8));
    CHECK(n.gone.empty());
    REQUIRE(n.moves.size() == 2);
    CHECK(n.moves[0].from == "tcp://10.0.0.1:7");
    CHECK(n.moves[0].to != n.moves[1].to);
    CHECK(n.moves[0].peer == n.peers[0]);
    CHECK(n.daemon->spans_networks());

    n.net.cut(2);
    n.turn();
    CHECK(n.daemon->lost_for());
    CHECK_FALSE(n.daemon->spans_networks());
    CHECK(n.gone == std::vector<PeerId>{n.peers[0]});
    CHECK(n.listener->lost_networks(n.peers[0]).size() == 3);
  }
}

TEST_CASE("paths: many frames over short queues, and a loss after every few") {
  Networks n(most_paths, 5);
  CHECK(n.up());
  n.turn();
  for (std::size_t lost = 0; lost + 1 < most_paths; ++lost) {
    for (std::size_t i = 0; i < 100 + 7 * lost; ++i) {
      n.up();
      n.down();
      if (i % 5 == lost % 5)
        if (const auto f = n.daemon->receive()) n.at_daemon.push_back(std::stoi(f->body));
      if (i % 3 == 0) n.turn();
    }
    n.turn();
    // The path in use is the one that hvdrun's address names.
    const std::string used = n.moves.empty() ? "tcp://10.0.0.1:7" : n.moves.back().to;
    n.up();
    n.down();
    n.net.cut(std::stoul(used.substr(11)), lost % 2 == 0);
    n.turn();
  }
  n.turn();
  CHECK(n.moves.size() == most_paths - 1);
  CHECK(n.next_up > 1000);
  CHECK(n.at_hvdrun == first(n.next_up));
  CHECK(n.at_daemon == first(n.next_down));
}

TEST_CASE("paths: frames that wait on the old path after a move are not taken twice") {
  Networks n;
  CHECK(n.up());
  n.turn();
  for (int i = 0; i < 4; ++i) CHECK(n.up());
  n.net.cut(0);  // the four frames still reach hvdrun, after the daemon has moved
  static_cast<void>(n.daemon->receive());
  n.turn();
  CHECK(n.at_hvdrun == first(5));
}

TEST_CASE("paths: a path that is not in use may end") {
  Networks n;
  CHECK(n.up());
  n.turn();
  n.net.cut(1);
  n.turn();
  CHECK((n.up() && n.down()));
  n.turn();
  CHECK(n.at_hvdrun == first(2));
  CHECK(n.moves.empty());
  CHECK(n.gone.empty());
  CHECK_FALSE(n.daemon->spans_networks());
  CHECK_FALSE(n.daemon->lost_for());
}

TEST_CASE("paths: hvdrun refuses an impossible count, and the daemon is lost") {
  for (const std::uint64_t claim : {std::uint64_t{9}, refused_move}) {
    SimNet net;
    const auto listener = with_paths(net.listen());
    const auto one = net.connect(), two = net.connect();
    const std::string name(path_name_letters, 'n');
    CHECK(one->send({number(Type::path), name + '\0' + '\2' + "tcp://a:1"}));
    CHECK(two->send({number(Type::path), name + '\1' + '\2' + "tcp://b:1"}));
    CHECK(one->send({7, "0"}));
    const auto got = listener->receive();
    REQUIRE(got);
    CHECK(listener->send(got->from, {7, "0"}));
    CHECK(two->send({number(Type::moved), path_count_body(claim)}));
    CHECK_FALSE(listener->receive());
    CHECK(listener->gone() == got->from);
    CHECK_FALSE(listener->moved());
    CHECK(two->receive()->body == path_count_body(refused_move));
  }
}

TEST_CASE("paths: an impossible count from hvdrun ends the connection") {
  SimNet net;
  const auto hvdrun = net.listen();
  std::vector<OpenPath> open;
  open.push_back({net.connect(), "tcp://a:1"});
  open.push_back({net.connect(), "tcp://b:1"});
  const auto daemon = over_paths(std::move(open));
  CHECK_FALSE(daemon->receive());
  const auto path = hvdrun->receive();
  REQUIRE(path);
  CHECK(hvdrun->send(path->from, {number(Type::confirmed), path_count_body(1)}));
  CHECK_FALSE(daemon->receive());
  CHECK(daemon->lost_for());
  CHECK_FALSE(daemon->spans_networks());
  CHECK_FALSE(daemon->send({7, "0"}));
}

TEST_CASE("paths: malformed frames are ignored") {
  SimNet net;
  const auto listener = with_paths(net.listen());
  const auto one = net.connect();
  for (const std::string& body : {std::string(), std::string(path_name_letters, 'n'),
                                  std::string(path_name_letters, 'n') + '\2' + '\2', std::string(64, '\x7f')})
    CHECK(one->send({number(Type::path), body}));
  CHECK_FALSE(listener->receive());
  CHECK_FALSE(listener->awaits_paths());
  CHECK(path_count_of("1234567") == refused_move);
  CHECK(path_count_of(path_count_body(0x0102030405060708)) == 0x0102030405060708);
}
