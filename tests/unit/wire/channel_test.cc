/// The channels over unix sockets and TCP, and what a stranger can do to them: nothing.
#include "wire/channel.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/error.h"
#include "wire/sim_channel.h"

using namespace hvd;
using namespace hvd::wire;
using namespace std::chrono_literals;

namespace {

/// Asks @p done every few milliseconds, for at most @p limit.
bool eventually(const std::function<bool()>& done, std::chrono::milliseconds limit = 10s) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end) {
    if (done()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return done();
}

struct Pair {
  explicit Pair(const std::string& bind)
      : listener(wire::listen({bind}, server, client.public_key)),
        connection(wire::connect({listener->addresses().at(0), server.public_key}, client)) {}

  // Both ends turn, as they do in their programs: what the kernel had no room for leaves then.
  Listener::PeerFrame receive() {
    std::optional<Listener::PeerFrame> r;
    REQUIRE(eventually([&] {
      if (connection) CHECK(!connection->receive());
      return (r = listener->receive()).has_value();
    }));
    return *r;
  }
  Frame answer() {
    std::optional<Frame> f;
    REQUIRE(eventually([&] {
      CHECK(!listener->receive());
      return (f = connection->receive()).has_value();
    }));
    return *f;
  }

  KeyPair server = KeyPair::generate(), client = KeyPair::generate();
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Connection> connection;
};

/// A new one; the files go when the program ends.
std::string socket_path(const char* scheme = "ipc://") {
  struct Files {
    std::vector<std::string> paths;
    ~Files() {
      for (const std::string& path : paths) unlink(path.c_str());
    }
  };
  static Files made;
  made.paths.push_back("/tmp/hvd-channel-test-" + std::to_string(getpid()) + "-" +
                       std::to_string(made.paths.size() + 1));
  return scheme + made.paths.back();
}

constexpr const char* both_kinds[] = {"ipc://", "unix://"};  ///< ZeroMQ's, and ours

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
    Pair p(address);
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
  Pair p("tcp://127.0.0.1:*");
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
  Pair p("tcp://127.0.0.1:*");
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

TEST_CASE("channel: garbage on the port harms nobody") {
  Pair p("tcp://127.0.0.1:*");
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
  Pair p("tcp://127.0.0.1:*");
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
    Pair p(socket_path(kind));
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
    Pair p(socket_path(kind));
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

TEST_CASE("channel: hvdrun notices that a guard is gone, and only that one") {
  std::string address;
  SUBCASE("network") { address = "tcp://127.0.0.1:*"; }
  SUBCASE("this host") { address = socket_path("unix://"); }
  Pair p(address);
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
  Pair p(address);
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

TEST_CASE("local channel: without the key nobody is heard, and nobody else notices") {
  const std::string address = socket_path("unix://"), path = address.substr(7);
  Pair p(address);
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
  // The key of the job, then what is no frame of ours: a reserved byte, a length beyond all bounds.
  fds.push_back(stranger(key + std::string("\1\0\0\0\1\0\1\0x", 9)));
  fds.push_back(stranger(key + std::string("\xff\xff\xff\xff\1\0\0\0", 8)));
  CHECK(p.connection->send({2, "guard"}));
  CHECK(p.receive().frame.body == "guard");
  int gone = 0;  // the two that knew the key
  CHECK(eventually([&] {
    CHECK(!p.listener->receive());
    while (p.listener->gone()) ++gone;
    return gone == 2;
  }));
  CHECK(eventually([&] {
    CHECK(!other_job->receive());
    return other_job->lost_for().has_value();
  }));
  // Byte by byte is as good as at once.
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
  Pair p(socket_path("unix://"));
  for (int i = 0; i < 50; ++i) CHECK(p.connection->send({2, std::to_string(i)}));
  p.connection.reset();
  CHECK(!p.listener->gone());
  PeerId from;
  for (int i = 0; i < 50; ++i) {
    const auto r = p.receive();
    CHECK(r.frame.body == std::to_string(i));
    if (i == 0) {  // it is no longer there to hear, but it has more to say
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
  CHECK(!listener->gone());  // what it had sent comes first
  CHECK(listener->receive()->frame.body == "2");
  CHECK(listener->gone() == r->from);
  CHECK(!listener->gone());
  CHECK_THROWS_AS(listener->send(r->from, {2, ""}), Error);
}

namespace {

/// While one lives: @p count connections to @p port of this host, made and held by another process.
class HalfOpen {
 public:
  HalfOpen(int port, int count) {
    REQUIRE(pipe(ends_) == 0);
    child_ = fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) hold(port, count);
    char done = 0;
    REQUIRE(read(ends_[0], &done, 1) == 1);
    REQUIRE(done == 'y');
  }
  ~HalfOpen() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    close(ends_[0]), close(ends_[1]);
  }

 private:
  [[noreturn]] void hold(int port, int count) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
    close_range(3, static_cast<unsigned>(ends_[1]) - 1, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool good = true;
    for (int i = 0; i < count; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      good = good && fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    }
    if (write(ends_[1], good ? "y" : "n", 1) == 1 && good) pause();
    _exit(0);
  }
  int ends_[2] = {-1, -1};
  pid_t child_ = -1;
};

int open_descriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.exists();
  return count;
}

}  // namespace

TEST_CASE("channel: connections that say nothing leave descriptors to others") {
  const KeyPair server = KeyPair::generate(), client = KeyPair::generate();
  const auto listener = wire::listen({socket_path(), "tcp://127.0.0.1:*"}, server, client.public_key);
  const std::vector<std::string> addresses = listener->addresses();
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(open_descriptors()) + 150;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  {
    const HalfOpen strangers(std::stoi(addresses.at(1).substr(addresses.at(1).rfind(':') + 1)), 300);
    CHECK(eventually([&] { return open_descriptors() > static_cast<int>(few.rlim_cur) - 70; }));
    std::this_thread::sleep_for(50ms);  // libzmq's thread works off what waits at its door
    CHECK(open_descriptors() < static_cast<int>(few.rlim_cur) - 50);
    // Over the unix socket, where libzmq would abort for want of a descriptor: refused now, it tries again.
    for (const std::string& address : addresses) {
      const auto guard = wire::connect({address, server.public_key}, client);
      std::this_thread::sleep_for(100ms);
      CHECK(!guard->connected());
    }
  }
  for (const std::string& address : addresses) {
    const auto guard = wire::connect({address, server.public_key}, client);
    CHECK(eventually([&] {
      CHECK(!listener->receive());
      return guard->connected();
    }));
  }
  CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}
