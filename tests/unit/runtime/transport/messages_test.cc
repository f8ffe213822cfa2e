#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "base/process/process.h"
#include "tcp_ranks.h"

using namespace hvd;
using namespace hvd::testing;
using transport::Tag;
using transport::Transport;

namespace {

const std::vector<std::size_t> sizes = {
    0, 1, 100, 32 << 10, (32 << 10) + 1, 7, 256 << 10, (1 << 20) + 3, 40 << 10, 5, 12345, 3 << 20, 0, (64 << 10)};

}  // namespace

TEST_CASE("messages of all sizes between all ranks") {
  for (const auto way : {by_tcp, by_tls, by_unix_sockets})
    for (const int ranks : {2, 4})
      check_none(run_tcp(
          ranks,
          [](Transport& t) {
            for (int round = 0; round < (under_sanitizer ? 1 : 2); ++round) exchange_all(t, sizes);
          },
          way));
}

TEST_CASE("ranks of one host listen on no port, and their sockets have no name") {
  const transport::tcp::Doorway d = transport::tcp::open_doorway(by_unix_sockets(), true);
  CHECK_FALSE(d.listener);
  REQUIRE(d.local);
  CHECK(d.local->path().starts_with("/proc/" + std::to_string(::getpid()) + "/fd/"));
  sockaddr_un name{};
  socklen_t bytes = sizeof name;
  REQUIRE(::getsockname(d.local->fd(), reinterpret_cast<sockaddr*>(&name), &bytes) == 0);
  CHECK(::access(name.sun_path, F_OK) != 0);
}

TEST_CASE("a process of another user is not let in, and one of this user is") {
  if (::geteuid() != 0) return;  // only root can change the user
  const auto listener = transport::tcp::UnixListener::open();
  REQUIRE(listener);
  const transport::tcp::CallAddress to = transport::tcp::call_address(listener->path());
  for (const bool other : {false, true}) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (other && ::setuid(54321) != 0) ::_exit(9);
      const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
      ::_exit(::connect(fd, reinterpret_cast<const sockaddr*>(&to.at), to.bytes) == 0 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WEXITSTATUS(status) == (other ? 1 : 0));
  }
}

TEST_CASE("a connection of another user is refused before a byte is read") {
  if (::geteuid() != 0) return;
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM, 0));
  const transport::tcp::CallAddress at = transport::tcp::call_address("@hvd.test." + std::to_string(::getpid()));
  REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at.at), at.bytes) == 0);
  REQUIRE(::listen(listener.get(), 5) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    ::_exit(::setuid(54321) == 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&at.at), at.bytes) == 0 ? 0 : 1);
  }
  const Fd called(::accept(listener.get(), nullptr, nullptr));
  CHECK_FALSE(is_of_this_user(called.get()));
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("several connections for large messages") {
  check_none(run_tcp(
      3,
      [](Transport& t) {
        for (int round = 0; round < (under_sanitizer ? 1 : 2); ++round) exchange_all(t, sizes);
      },
      [](int) {
        transport::tcp::TcpOptions o = by_tcp();
        o.bulk_lanes = 3;
        return o;
      }));
}

TEST_CASE("messages without a receive wait for poll, in sequence") {
  check_none(run_tcp(3, [](Transport& t) {
    std::vector<std::string> bodies;
    for (int i = 0; i < 50; ++i) bodies.push_back(std::to_string(i) + pattern(static_cast<std::size_t>(i * 997), i));
    if (t.rank() != 0) {
      std::vector<transport::Ticket> tickets;
      for (const std::string& b : bodies) tickets.push_back(t.isend(0, Tag::up, b.data(), b.size()));
      for (const transport::Ticket ticket : tickets) await(t, ticket);
      await(t, Tag::down);
      return;
    }
    std::vector<std::size_t> next(3);
    for (int i = 0; i < 100; ++i) {
      const transport::Message m = await(t, Tag::up);
      if (m.body != bodies[next[static_cast<std::size_t>(m.from)]++])
        throw Error(Code::internal, "test", "out of sequence");
    }
    for (int r = 1; r < 3; ++r) await(t, t.isend(r, Tag::down, "end", 3));
  }));
}

TEST_CASE("a large message waits for its receive, and small ones pass it") {
  check_none(run_tcp(2, [](Transport& t) {
    std::string large = pattern(8 << 20, 1), got(large.size(), 0);
    if (t.rank() == 0) {
      const transport::Ticket sent = t.isend(1, Tag::data, large.data(), large.size());
      await(t, t.isend(1, Tag::up, "small", 5));
      if (await(t, Tag::down).body != "ready") throw Error(Code::internal, "test", "wrong answer");
      if (t.test(sent)) throw Error(Code::internal, "test", "it has left, though there is no receive");
      await(t, t.isend(1, Tag::up, "go", 2));
      await(t, sent);
    } else {
      if (await(t, Tag::up).body != "small") throw Error(Code::internal, "test", "wrong message");
      await(t, t.isend(0, Tag::down, "ready", 5));
      if (await(t, Tag::up).body != "go") throw Error(Code::internal, "test", "wrong message");
      await(t, t.irecv(0, Tag::data, got.data(), got.size()));
      if (got != large) throw Error(Code::internal, "test", "wrong bytes");
    }
  }));
}

TEST_CASE("sets do not mix, and number their members") {
  check_none(run_tcp(4, [](Transport& t) {
    if (t.rank() == 0) return void(await(t, Tag::up));
    const auto set = t.split({3, 1, 2}, 5);
    exchange_all(t.rank() == 0 ? t : *set, {10, 100'000});
    const int next = (set->rank() + 1) % 3;
    const std::string text = "from " + std::to_string(set->rank());
    await(*set, set->isend(next, Tag::up, text.data(), text.size()));
    const transport::Message m = await(*set, Tag::up);
    if (m.from != (set->rank() + 2) % 3 || m.body != "from " + std::to_string(m.from))
      throw Error(Code::internal, "test", "another set's message");
    if (t.rank() == 3) await(t, t.isend(0, Tag::up, "end", 3));
  }));
}

TEST_CASE("what was abandoned is not touched, and the rest goes on") {
  check_none(run_tcp(2, [](Transport& t) {
    for (int round = 0; round < 20; ++round) {
      const std::string body = pattern(1 << 20, round);
      {
        std::string lost = body, into(body.size(), 'x');
        const int other = 1 - t.rank();
        const transport::Ticket in = t.irecv(other, Tag::second, into.data(), into.size());
        const transport::Ticket out = t.isend(other, Tag::second, lost.data(), lost.size());
        if (round % 2) t.test(out), t.test(in);
        t.abandon(in);
        t.abandon(out);
      }
      exchange_all(t, {100, 200'000});
    }
  }));
}

TEST_CASE("a rank that leaves is told of, by its number, to those who wait") {
  const auto failures = run_tcp(2, [](Transport& t) {
    exchange_all(t, {10});
    if (t.rank() == 1) return;
    char byte;
    await(t, t.irecv(1, Tag::data, &byte, 1));
  });
  CHECK(failures[0] == "rank 1 has shut down while this rank waits for it");
  CHECK(failures[1] == "");
}

TEST_CASE("ranks with different keys") {
  const auto failures = run_tcp(
      2, [](Transport& t) { exchange_all(t, {1}); },
      [](int r) {
        transport::tcp::TcpOptions o = by_tcp();
        o.key.emplace();
        (*o.key)[0] = static_cast<unsigned char>(r);
        return o;
      });
  for (const std::string& f : failures) CHECK(f.find("have different keys of the job") != std::string::npos);
}

TEST_CASE("an idle rank sleeps, and a message wakes its thread") {
  const auto sleep_and_wake = [](Transport& t) {
    exchange_all(t, {10});
    std::atomic<int> arrived{0};
    const bool wakes = t.watch([&] { arrived.fetch_add(1); });
    if (!wakes) throw Error(Code::internal, "test", "messages wake nobody");
    if (t.rank() == 0) {
      t.arm(true);
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (arrived == 0 && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (arrived != 1) throw Error(Code::internal, "test", "armed once, told " + std::to_string(arrived));
      await(t, Tag::up);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      await(t, t.isend(0, Tag::up, "x", 1));
    }
    t.watch({});
  };
  for (const auto way : {by_tcp, by_tls}) check_none(run_tcp(2, sleep_and_wake, way));
}

TEST_CASE("the watching thread is called later without a message") {
  const auto wait_for_call = [](Transport& t) {
    exchange_all(t, {10});
    std::atomic<int> called{0};
    t.watch([&] { called.fetch_add(1); });
    for (int turn = 1; turn <= 2; ++turn) {
      t.call_later();
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (called < turn && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (called != turn) throw Error(Code::internal, "test", "called " + std::to_string(called));
    }
    t.watch({});
  };
  check_none(run_tcp(2, wait_for_call));
}

namespace {

/// A transport that reaches no peer.
class DeafCalls final : public transport::tcp::SocketCalls {
 public:
  int connect_error(int) override { return EHOSTUNREACH; }
};

}  // namespace

TEST_CASE("where hosts cannot connect, the trial gives the other transport back") {
  for (const bool deaf : {false, true}) {
    DeafCalls calls;
    const auto world = std::make_shared<transport::LoopbackWorld>(std::vector<int>{0, 1, 2});
    std::vector<std::thread> threads;
    std::vector<std::string> refused(3, "?");
    for (int r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        transport::tcp::TcpOptions o = by_tcp();
        o.needs_trial = true;
        o.limit_seconds = 1;
        if (deaf) o.calls = &calls;
        const auto meets = world->open(r);
        auto opened = open_tcp(*meets, o);
        refused[static_cast<std::size_t>(r)] = opened.refused;
      });
    for (std::thread& t : threads) t.join();
    CHECK(refused == std::vector<std::string>(3, refused[0]));
    CHECK(refused[0].empty() == !deaf);
    if (deaf) CHECK(refused[0].find("cannot be reached") != std::string::npos);
  }
}
