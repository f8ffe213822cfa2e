/// The channel of one host, over a unix socket; and the channel that tests simulate.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"
#include "channel_pair.h"
#include "wire/channel/sim_channel.h"

using namespace hvd;
using namespace hvd::wire;
using namespace hvd::test;

TEST_CASE("local channel: a peer without the key is ignored, and no other peer notices") {
  const std::string address = socket_path("unix://"), path = address.substr(7);
  ChannelPair p(address);
  struct stat about {};
  REQUIRE(stat(path.c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0600);
  const auto stranger = [&](const std::string& bytes) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path, path.data(), path.size());
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return fd;
  };
  const std::string hello{"\5\0\0\0\1\0\0\0hello", 13}, key = p.client.public_key;
  std::vector<int> fds{stranger(""), stranger(key.substr(1)), stranger(std::string(40, 'x') + hello), stranger(hello)};
  auto other_job = wire::connect({address, p.server.public_key}, KeyPair::for_this_host());
  other_job->send({1, "let me in"});
  // The key of the job, then an invalid frame: a reserved byte, a length beyond all bounds.
  fds.push_back(stranger(key + std::string("\1\0\0\0\1\0\1\0x", 9)));
  fds.push_back(stranger(key + std::string("\xff\xff\xff\xff\1\0\0\0", 8)));
  CHECK(p.connection->send({2, "guard"}));
  CHECK(p.receive().frame.body == "guard");
  int gone = 0;  // the number of lost peers of the two that knew the key
  CHECK(eventually([&] {
    CHECK(!p.listener->receive());
    while (p.listener->gone()) ++gone;
    return gone == 2;
  }));
  CHECK(eventually([&] {
    CHECK(!other_job->receive());
    return other_job->lost_for().has_value();
  }));
  // Byte by byte gives the same result as at once.
  const int slow = stranger("");
  const std::string all = key + hello;
  for (std::size_t i = 0; i < all.size(); ++i) {
    send(slow, &all[i], 1, MSG_NOSIGNAL);
    if (i + 1 < all.size()) CHECK(!p.listener->receive());
  }
  CHECK(p.receive().frame.body == "hello");
  close(slow);
  for (const int fd : fds) close(fd);
}

TEST_CASE("local channel: what a guard said before its end is all heard before it is gone") {
  ChannelPair p(socket_path("unix://"));
  for (int i = 0; i < 50; ++i) CHECK(p.connection->send({2, std::to_string(i)}));
  p.connection.reset();
  CHECK(!p.listener->gone());
  PeerId from;
  for (int i = 0; i < 50; ++i) {
    const auto r = p.receive();
    CHECK(r.frame.body == std::to_string(i));
    if (i == 0) {  // the peer no longer reads, but has more to send
      p.listener->send(r.from, {36, ""});
      p.listener->send(r.from, {36, ""});
    }
    CHECK(!p.listener->gone());
    from = r.from;
  }
  CHECK(eventually([&] {
    CHECK(!p.listener->receive());
    const auto who = p.listener->gone();
    return who && *who == from;
  }));
  CHECK_THROWS_AS(p.listener->send(from, {36, ""}), Error);
}

TEST_CASE("local channel: no socket there yet is not the end") {
  const KeyPair keys = KeyPair::for_this_host();
  const std::string address = socket_path("unix://");
  auto guard = wire::connect({address, keys.public_key}, keys);
  CHECK(!guard->connected());
  CHECK(!guard->send({1, "x"}));
  CHECK(guard->lost_for());
  auto listener = wire::listen({address}, keys, keys.public_key);
  CHECK(eventually([&] { return guard->connected(); }));
  CHECK(!guard->lost_for());
  CHECK_THROWS_AS(wire::listen({"unix://relative"}, keys, keys.public_key), Error);
  CHECK_THROWS_AS(wire::listen({address}, keys, "short"), Error);
  CHECK_THROWS_AS(wire::connect({"unix:///" + std::string(200, 'x'), ""}, keys), Error);
}

TEST_CASE("sim channel: order, full queues, cuts") {
  SimNet net(2);
  auto listener = net.listen();
  auto a = net.connect(), b = net.connect();
  CHECK(a->send({1, "1"}));
  CHECK(a->send({1, "2"}));
  CHECK(!a->send({1, "3"}));
  CHECK(b->send({1, "b"}));
  const auto r = listener->receive();
  CHECK(r->frame.body == "1");
  CHECK(listener->send(r->from, {2, "down"}));
  CHECK(a->receive()->body == "down");
  CHECK(!b->receive());
  net.cut(0);
  CHECK(a->lost_for());
  CHECK(!b->lost_for());
  CHECK(!listener->gone());  // the frames that it had sent come first
  CHECK(listener->receive()->frame.body == "2");
  CHECK(listener->gone() == r->from);
  CHECK(!listener->gone());
  CHECK_THROWS_AS(listener->send(r->from, {2, ""}), Error);
}
