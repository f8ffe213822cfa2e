/// The channels over unix sockets and TCP. A stranger cannot affect them.
#include "wire/channel/channel.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <thread>

#include "base/error.h"
#include "cable.h"
#include "channel_pair.h"

using namespace hvd;
using namespace hvd::wire;
using namespace hvd::test;
using namespace std::chrono_literals;

namespace {

/// A plain TCP connection to "tcp://127.0.0.1:port".
int raw_connect(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  return fd;
}

}  // namespace

TEST_CASE("channel: both ways, over each kind of address") {
  std::vector<std::string> addresses{"tcp://127.0.0.1:*", socket_path(), socket_path("unix://")};
  if (access("/proc/net/if_inet6", F_OK) == 0) {
    const int s = socket(AF_INET6, SOCK_STREAM, 0);
    sockaddr_in6 a{};
    a.sin6_family = AF_INET6;
    a.sin6_addr = in6addr_loopback;
    if (s >= 0 && bind(s, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0) addresses.emplace_back("tcp://[::1]:*");
    if (s >= 0) close(s);
  }
  for (const std::string& address : addresses) {
    CAPTURE(address);
    ChannelPair p(address);
    CHECK(p.connection->send({7, "hello"}));
    const auto r = p.receive();
    CHECK(r.frame.type == 7);
    CHECK(r.frame.body == "hello");
    CHECK(eventually([&] { return p.connection->connected(); }));
    CHECK(!p.connection->lost_for());
    const std::string big(max_frame_bytes, 'x');
    CHECK(p.listener->send(r.from, {65535, big}));
    const Frame f = p.answer();
    CHECK(f.type == 65535);
    CHECK(f.body == big);
    CHECK(p.connection->send({1, ""}));
    CHECK(p.receive().frame.body.empty());
    CHECK_THROWS_AS(p.connection->send({1, std::string(max_frame_bytes + 1, 'x')}), Error);
  }
}

TEST_CASE("channel: another key is never heard") {
  ChannelPair p("tcp://127.0.0.1:*");
  const Endpoint to{p.listener->addresses()[0], p.server.public_key};
  auto stranger = wire::connect(to, KeyPair::generate());
  auto misled = wire::connect({to.address, KeyPair::generate().public_key}, p.client);
  stranger->send({1, "let me in"});
  misled->send({1, "wrong server"});
  CHECK(p.connection->send({2, "guard"}));
  CHECK(p.receive().frame.body == "guard");
  std::this_thread::sleep_for(300ms);
  CHECK(!p.listener->receive());
  CHECK(!stranger->connected());
  CHECK(!misled->connected());
  CHECK(stranger->lost_for().value_or(0ms) > 200ms);
}

TEST_CASE("channel: a peer without CURVE is never heard") {
  ChannelPair p("tcp://127.0.0.1:*");
  void* context = zmq_ctx_new();
  void* plain = zmq_socket(context, ZMQ_DEALER);
  const int none = 0;
  zmq_setsockopt(plain, ZMQ_LINGER, &none, sizeof none);
  zmq_connect(plain, p.listener->addresses()[0].c_str());
  zmq_send(plain, "\1\0hello", 7, ZMQ_DONTWAIT);
  std::this_thread::sleep_for(200ms);
  CHECK(!p.listener->receive());
  zmq_close(plain);
  zmq_ctx_term(context);
}

TEST_CASE("channel: garbage on the port harms no connection") {
  ChannelPair p("tcp://127.0.0.1:*");
  std::vector<int> fds;
  for (int i = 0; i < 20; ++i) {
    const int fd = raw_connect(p.listener->addresses()[0]);
    std::string junk(100000, static_cast<char>(i * 13));
    if (i % 3 == 0) junk = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    // A ZMTP 3.1 greeting for CURVE, then a frame that claims to be 2^63 - 1 bytes long.
    if (i % 3 == 1) {
      junk = std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\1CURVE", 17) + std::string(47, '\0');
      junk += std::string("\6\x7f\xff\xff\xff\xff\xff\xff\xff", 9) + std::string(1000, 'x');
    }
    send(fd, junk.data(), junk.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    fds.push_back(fd);
  }
  CHECK(p.connection->send({2, "guard"}));
  CHECK(p.receive().frame.body == "guard");
  CHECK(!p.listener->receive());
  for (const int fd : fds) close(fd);
}

TEST_CASE("channel: a message of our key that is too long or malformed is dropped") {
  ChannelPair p("tcp://127.0.0.1:*");
  void* context = zmq_ctx_new();
  void* s = zmq_socket(context, ZMQ_DEALER);
  const int none = 0;
  zmq_setsockopt(s, ZMQ_LINGER, &none, sizeof none);
  zmq_setsockopt(s, ZMQ_CURVE_SERVERKEY, p.server.public_key.data(), 40);
  zmq_setsockopt(s, ZMQ_CURVE_PUBLICKEY, p.client.public_key.data(), 40);
  zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, p.client.secret_key.data(), 40);
  zmq_connect(s, p.listener->addresses()[0].c_str());
  zmq_send(s, "x", 1, 0);
  zmq_send(s, "\1\0part", 6, ZMQ_SNDMORE);
  zmq_send(s, "rest", 4, 0);
  zmq_send(s, "\1\0fine", 6, 0);
  CHECK(p.receive().frame.body == "fine");
  const std::string huge(max_frame_bytes + 1000, 'x');
  zmq_send(s, huge.data(), huge.size(), 0);
  std::this_thread::sleep_for(200ms);
  CHECK(!p.listener->receive());
  zmq_close(s);
  zmq_ctx_term(context);
}

TEST_CASE("channel: a slow reader stops the sender, and nothing is lost") {
  for (const char* kind : both_kinds) {
    CAPTURE(kind);
    ChannelPair p(socket_path(kind));
    const std::string body(64 << 10, 'o');
    int sent = 0;
    const auto fill = [&] {
      while (p.connection->send({2, body + std::to_string(sent)})) ++sent;
    };
    CHECK(eventually([&] {
      const int before = sent;
      fill();
      return before > 0 && before == sent && p.connection->connected();
    }));
    CHECK(sent < 1000);
    for (int got = 0; got < 500; ++got) {
      CHECK(p.receive().frame.body == body + std::to_string(got));
      if (sent < 500) fill();
      if (got + 1 >= sent) break;
    }
  }
}

TEST_CASE("channel: the guard notices that hvdrun is gone") {
  for (const char* kind : both_kinds) {
    CAPTURE(kind);
    ChannelPair p(socket_path(kind));
    p.connection->send({1, "x"});
    p.receive();
    CHECK(eventually([&] { return p.connection->connected(); }));
    p.listener.reset();
    CHECK(eventually([&] {
      CHECK(!p.connection->receive());
      return p.connection->lost_for().value_or(0ms) > 100ms;
    }));
    CHECK(p.connection->connected());
    p.connection->send({1, "into the void"});
  }
}

TEST_CASE("channel: a lost connection stays lost, even if the network is back before anybody looks") {
  const KeyPair server = KeyPair::generate(), client = KeyPair::generate();
  const auto listener = wire::listen({"tcp://127.0.0.1:*"}, server, client.public_key);
  Cable cable("127.0.0.2", listener->addresses()[0]);
  const auto connection = wire::connect({cable.address(), server.public_key}, client);
  REQUIRE(eventually([&] { return connection->connected() && !connection->lost_for(); }));
  cable.cut();
  // ZeroMQ connects again, to a listener that takes this for a new peer.
  REQUIRE(eventually([&] { return cable.callers() > 1; }));
  std::this_thread::sleep_for(200ms);  // the handshake, if it is quick
  for (int i = 0; i < 3; ++i) {
    CHECK(connection->lost_for());
    CHECK(connection->connected());
    std::this_thread::sleep_for(100ms);
  }
}

TEST_CASE("channel: hvdrun notices that a guard is gone, and only that one") {
  std::string address;
  SUBCASE("network") { address = "tcp://127.0.0.1:*"; }
  SUBCASE("this host") { address = socket_path("unix://"); }
  ChannelPair p(address);
  auto other = wire::connect({p.listener->addresses()[0], p.server.public_key}, p.client);
  other->send({1, "other"});
  const PeerId gone = p.receive().from;
  p.connection->send({1, "stays"});
  const PeerId stays = p.receive().from;
  CHECK(!p.listener->gone());
  other.reset();
  std::optional<PeerId> who;
  CHECK(eventually([&] {
    CHECK(!p.listener->receive());
    return (who = p.listener->gone()).has_value();
  }));
  CHECK(*who == gone);
  CHECK_THROWS_AS(p.listener->send(gone, {36, ""}), Error);
  CHECK(p.listener->send(stays, {36, "go"}));
  CHECK(eventually([&] {
    const auto f = p.connection->receive();
    return f && f->body == "go";
  }));
  CHECK(!p.listener->gone());
}

TEST_CASE("channel: poll() on fd() wakes for a frame") {
  std::string address;
  SUBCASE("ZeroMQ") { address = socket_path(); }
  SUBCASE("this host") { address = socket_path("unix://"); }
  ChannelPair p(address);
  p.connection->send({1, "x"});
  const PeerId guard = p.receive().from;
  while (p.connection->receive()) {}
  p.listener->send(guard, {36, "r"});
  std::optional<Frame> f;
  for (int i = 0; i < 100 && !f; ++i) {
    pollfd entry{p.connection->fd(), POLLIN, 0};
    REQUIRE(poll(&entry, 1, 5000) == 1);
    f = p.connection->receive();
  }
  REQUIRE(f);
  CHECK(f->body == "r");
}

TEST_CASE("channel: bad addresses and keys are refused at once") {
  const KeyPair k = KeyPair::generate();
  CHECK_THROWS_AS(wire::listen({"tcp://203.0.113.7:1"}, k, k.public_key), Error);
  CHECK_THROWS_AS(wire::listen({socket_path()}, k, "short"), Error);
  CHECK_THROWS_AS(wire::listen({socket_path()}, k, std::string(40, '\x01')), Error);
  CHECK_THROWS_AS(wire::connect({"nonsense", k.public_key}, k), Error);
  CHECK_THROWS_AS(wire::connect({"tcp://127.0.0.1:1", ""}, k), Error);
}
