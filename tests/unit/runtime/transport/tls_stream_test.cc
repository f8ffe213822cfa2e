/// Encrypted connections: the bytes arrive unchanged and are hidden, and an attacker on the path cannot change them.
#include "transport/tcp/stream/tls_stream.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <random>

#include "tcp_ranks.h"

using namespace hvd;
using namespace hvd::testing;
using namespace hvd::transport::tcp;

namespace {

/// A wire that the test controls: the bytes of one end lie in a string until they are given to the other end.
class HeldWire final : public SocketCalls {
 public:
  ssize_t send(int fd, const iovec* parts, int count) override {
    std::size_t taken = 0;
    for (int i = 0; i < count; ++i) {
      const std::size_t bytes = std::min({parts[i].iov_len, room - taken, budget});
      sent[fd].append(static_cast<const char*>(parts[i].iov_base), bytes);
      taken += bytes;
      budget -= bytes;
    }
    if (taken > 0) return static_cast<ssize_t>(taken);
    errno = EAGAIN;
    return -1;
  }
  ssize_t receive(int fd, const iovec* parts, int) override {
    ++receives;
    std::string& from = arriving[fd];
    if (from.empty() && closed) return 0;
    if (from.empty()) {
      errno = EAGAIN;
      return -1;
    }
    const std::size_t bytes = std::min({parts[0].iov_len, from.size(), most_a_read});
    from.copy(static_cast<char*>(parts[0].iov_base), bytes);
    from.erase(0, bytes);
    return static_cast<ssize_t>(bytes);
  }
  /// Delivers all that @p from has sent to the other end.
  std::string carry(int from) {
    arriving[1 - from] += sent[from];
    return std::exchange(sent[from], {});
  }

  std::map<int, std::string> sent, arriving;            ///< by end: 0 and 1
  std::size_t room = SIZE_MAX, most_a_read = SIZE_MAX;  ///< of one call
  std::size_t budget = SIZE_MAX;                        ///< the number of bytes that are still accepted in all
  bool closed = false;
  int receives = 0;
};

/// Two ends after their handshake.
struct Pair {
  explicit Pair(std::size_t most_records = TlsStream::records_a_key) {
    const KeyContext context(JobKey{});
    Handshake caller(context, Caller{}), listener(context);
    for (int i = 0; i < 10; ++i) {
      const std::string there = caller.give();
      REQUIRE(listener.take(there.data(), there.size()));
      if (listener.introduced() && i == 5) listener.answer(Welcome::yes);
      const std::string back = listener.give();
      REQUIRE(caller.take(back.data(), back.size()));
    }
    REQUIRE(caller.welcome() == Welcome::yes);
    std::string rest = caller.rest();
    ends[0] = std::make_unique<TlsStream>(wire, 0, caller.take_session(), rest, most_records);
    ends[1] = std::make_unique<TlsStream>(wire, 1, listener.take_session(), "", most_records);
  }

  /// Sends all of it from one end, in as many calls as that takes.
  void send(int from, std::string text) {
    while (!text.empty()) {
      const iovec part{text.data(), text.size()};
      const ssize_t taken = ends[from]->send(&part, 1);
      REQUIRE(taken > 0);
      text.erase(0, static_cast<std::size_t>(taken));
    }
  }
  /// Returns all bytes that have arrived; *ended: 0, or errno, or -1.
  std::string receive(int at, int* ended = nullptr, std::size_t most = 50'000) {
    std::string all, some(most, 0);
    for (;;) {
      const iovec part{some.data(), some.size()};
      const ssize_t got = ends[at]->receive(&part, 1, true);
      if (got > 0) {
        all.append(some, 0, static_cast<std::size_t>(got));
        continue;
      }
      if (ended) *ended = got == 0 ? -1 : errno == EAGAIN ? 0 : errno;
      return all;
    }
  }

  HeldWire wire;
  std::unique_ptr<TlsStream> ends[2];
};

}  // namespace

TEST_CASE("what is sent arrives, both ways, and cannot be read on the way") {
  Pair p;
  const std::string mark = "a mark that nobody else has";
  for (const std::size_t bytes : {1u, 100u, 16384u, 16385u, 1'000'000u}) {
    std::string text = pattern(bytes, 3);
    for (std::size_t at = 0; at + mark.size() <= bytes; at += 5000) text.replace(at, mark.size(), mark);
    for (const int from : {0, 1}) {
      p.send(from, text);
      CHECK(p.ends[from]->waiting() == 0);
      const std::string seen = p.wire.carry(from);
      CHECK(seen.size() > text.size());
      CHECK(seen.find(mark) == std::string::npos);
      if (bytes > 32) CHECK(seen.find(text.substr(0, 32)) == std::string::npos);
      CHECK(p.receive(1 - from) == text);
    }
  }
}

TEST_CASE("small parts share a record") {
  Pair p;
  std::string words[] = {"header", "", "body", std::string(20'000, 'x'), "end"};
  std::vector<iovec> parts;
  std::string all;
  for (std::string& w : words) {
    parts.push_back({w.data(), w.size()});
    all += w;
  }
  REQUIRE(p.ends[0]->send(parts.data(), 5) == static_cast<ssize_t>(all.size()));
  CHECK(p.wire.carry(0).size() < all.size() + 3 * 30);
  CHECK(p.receive(1) == all);
}

TEST_CASE("the kernel takes and gives in any pieces") {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    Pair p;
    const std::string text = pattern(300'000, round);
    std::string got;
    std::size_t at = 0;
    while (got.size() < text.size()) {
      p.wire.room = random() % 3 == 0 ? 0 : random() % 40'000;
      p.wire.most_a_read = 1 + random() % 30'000;
      iovec parts[2];
      const std::size_t first = std::min<std::size_t>(random() % 30'000, text.size() - at);
      const std::size_t second = std::min<std::size_t>(random() % 100, text.size() - at - first);
      parts[0] = {const_cast<char*>(text.data()) + at, first};
      parts[1] = {const_cast<char*>(text.data()) + at + first, second};
      const ssize_t taken = p.ends[0]->send(parts, 2);
      if (taken > 0) at += static_cast<std::size_t>(taken);
      CHECK((taken >= 0 || errno == EAGAIN));
      CHECK(p.ends[0]->flush() == 0);
      p.wire.carry(0);
      got += p.receive(1, nullptr, 1 + random() % 20'000);
      CHECK(text.compare(0, got.size(), got) == 0);
    }
  }
}

TEST_CASE("a slow other end costs no memory") {
  Pair p;
  p.wire.room = 0;
  const std::string text = pattern(8 << 20, 1);
  std::size_t taken = 0;
  for (;;) {
    const iovec part{const_cast<char*>(text.data()) + taken, text.size() - taken};
    const ssize_t some = p.ends[0]->send(&part, 1);
    if (some < 0) break;
    taken += static_cast<std::size_t>(some);
  }
  CHECK(errno == EAGAIN);
  CHECK(p.ends[0]->waiting() > 0);
  CHECK(taken <= 160 << 10);
  p.wire.room = SIZE_MAX;
  CHECK(p.ends[0]->flush() == 0);
  p.wire.carry(0);
  CHECK(p.receive(1) == text.substr(0, taken));
}

TEST_CASE("an end whose kernel never takes all that waits costs no memory either") {
  Pair p;
  std::string text(1 << 20, 'x');
  const iovec part{text.data(), text.size()};
  for (std::size_t sent = 0; sent < 32u << 20;) {
    p.wire.budget = 40'000;
    if (const ssize_t taken = p.ends[0]->send(&part, 1); taken > 0) sent += static_cast<std::size_t>(taken);
    REQUIRE(p.ends[0]->waiting() > 0);
    p.wire.sent[0].clear();
  }
  CHECK(p.ends[0]->waiting_memory() < 1 << 20);
}

TEST_CASE("what was taken from the kernel and not asked for is told of") {
  Pair p;
  p.send(0, pattern(100'000, 1));
  p.wire.carry(0);
  std::string some(10, 0);
  const iovec part{some.data(), some.size()};
  REQUIRE(p.ends[1]->receive(&part, 1, true) == 10);
  std::string got = some;
  const int calls = p.wire.receives;
  while (p.ends[1]->pending()) {
    const ssize_t more = p.ends[1]->receive(&part, 1, false);
    if (more > 0) got.append(some, 0, static_cast<std::size_t>(more));
  }
  CHECK(got == pattern(100'000, 1));
  CHECK(p.wire.receives == calls);
}

TEST_CASE("keys change after a fixed number of records, any number of times") {
  Pair p(3);
  for (int i = 0; i < 1000; ++i)
    for (const int from : {0, 1}) {
      p.send(from, "a record");
      p.wire.carry(from);
      int ended = 0;
      CHECK(p.receive(1 - from, &ended) == "a record");
      CHECK(ended == 0);
    }
}

TEST_CASE("no bit can be changed on the way") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    Pair p;
    p.send(0, "the first");
    p.send(0, "the second");
    std::string& wire = p.wire.sent[0];
    const std::size_t bit = random() % (wire.size() * 8);
    wire[bit / 8] = static_cast<char>(wire[bit / 8] ^ (1 << bit % 8));
    const bool in_first = bit / 8 < wire.size() / 2;
    p.wire.carry(0);
    p.wire.closed = true;  // a length that is larger now: no more bytes follow
    int ended = 0;
    std::string got = p.receive(1, &ended);
    if (ended == 0) got += p.receive(1, &ended);  // the bytes were complete, so the kernel had not been asked again
    INFO("bit " << bit);
    CHECK(got == (in_first ? "" : "the first"));
    CHECK((ended == EBADMSG || ended == -1));
    CHECK(p.ends[1]->pending());  // epoll does not report the end again
    p.wire.arriving[1] = "more";
    CHECK(p.receive(1, &ended) == "");
    CHECK(ended != 0);
  }
}

TEST_CASE("a record is refused that comes again, late, out of sequence, from another connection, or in clear") {
  const auto refused = [](Pair& p, const std::string& wire, const std::string& before = "") {
    p.wire.arriving[1] += wire;
    int ended = 0;
    CHECK(p.receive(1, &ended) == before);
    CHECK(ended == EBADMSG);
  };
  const auto record = [](Pair& p, const std::string& text) {
    p.send(0, text);
    return std::exchange(p.wire.sent[0], {});
  };
  Pair again;
  const std::string one = record(again, "one");
  refused(again, one + one, "one");
  Pair sequence;
  const std::string first = record(sequence, "first"), second = record(sequence, "second");
  refused(sequence, second + first);
  Pair mine, other;
  refused(mine, record(other, "another's"));
  Pair reflected;
  reflected.send(1, "its own");
  refused(reflected, std::exchange(reflected.wire.sent[1], {}));
  Pair clear;
  refused(clear, std::string("\x01\x02\x00\x00 a frame in clear, as without --encrypt-tensors ................", 60));
  Pair as_record;  // a header of TLS before bytes in clear
  refused(as_record, std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'x'));
  Pair large;
  refused(large, std::string("\x17\x03\x03\xff\xff", 5) + std::string(70'000, 'x'));
}

TEST_CASE("a connection that is cut is told of as such") {
  for (const std::size_t left : {0u, 3u, 20u}) {
    Pair p;
    p.send(0, "whole");
    p.wire.carry(0);
    p.send(0, "cut");
    p.wire.sent[0].resize(left);
    p.wire.carry(0);
    p.wire.closed = true;
    int ended = 0;
    std::string got = p.receive(1, &ended);
    if (ended == 0) got += p.receive(1, &ended);
    CHECK(got == "whole");
    CHECK(ended == -1);
  }
}

namespace {

/// An attacker changes one bit of the bytes that arrive with the at-th call.
class Tampering final : public SocketCalls {
 public:
  explicit Tampering(int at) : at_(at) {}
  ssize_t receive(int fd, const iovec* parts, int count) override {
    const ssize_t got = SocketCalls::receive(fd, parts, count);
    if (got > 0 && seen_++ == at_) static_cast<unsigned char*>(parts[0].iov_base)[(got - 1) / 2] ^= 4;
    return got;
  }
  bool done() const { return seen_ > at_; }

 private:
  const int at_;
  int seen_ = 0;
};

}  // namespace

TEST_CASE("who changes a bit between two ranks is found out, and the rank is named") {
  int refused = 0;
  for (int at = 0; at < 60; ++at) {
    Tampering tampering(at);
    const auto failures = run_tcp(
        2,
        [](transport::Transport& t) {
          exchange_all(t, {10, 100'000, 3, 1 << 20});
        },
        [&](int r) {
          TcpOptions o = by_tls();
          o.again_seconds = 0.002;
          o.leave_seconds = 0.02;
          if (r == 1) o.calls = &tampering;
          return o;
        });
    for (int r = 0; r < 2; ++r) {
      const std::string& f = failures[static_cast<std::size_t>(r)];
      INFO("call " << at << " rank " << r << ": " << f);
      CHECK((f.empty() || f.find("rank " + std::to_string(1 - r)) != std::string::npos));
    }
    refused += failures[1].find("a message on its connection has the wrong seal") != std::string::npos;
    if (!tampering.done()) break;
  }
  CHECK(refused > 3);
}

TEST_CASE("ranks of which one encrypts do not speak with each other") {
  for (const int encrypts : {0, 1}) {
    const auto failures = run_tcp(
        2, [](transport::Transport& t) { exchange_all(t, {10}); },
        [&](int r) {
          TcpOptions o = by_tcp();
          o.encrypts = r == encrypts;
          o.limit_seconds = 0.5;
          return o;
        });
    for (const std::string& f : failures) CHECK(f != "");
    CHECK((failures[0] + failures[1]).find("one end encrypts tensors, the other does not") != std::string::npos);
  }
}
