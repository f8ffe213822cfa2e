/// Several network interfaces between two ranks: networks of the loopback interface stand for them.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "tcp_ranks.h"
#include "transport/tcp/connect/listen_address.h"
#include "transport/tcp/stream/lane.h"

using namespace hvd;
using namespace hvd::testing;
using namespace hvd::transport::tcp;
using transport::Tag;
using transport::Transport;

namespace {

CardAddress card(const std::string& word) { return CardAddress::of(word).value(); }

/// N of an address 127.0.N.x.
int card_of(const sockaddr_storage& at) {
  return at.ss_family == AF_INET
             ? reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in*>(&at)->sin_addr)[2]
             : reinterpret_cast<const sockaddr_in6*>(&at)->sin6_addr.s6_addr[14];
}

/// Returns the number N of the network interface 127.0.N.x that a connection uses; 0: it is not connected. One end is
/// 127.0.0.1.
int card_of(int fd) {
  sockaddr_storage at{};
  socklen_t bytes = sizeof at;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&at), &bytes) != 0) return 0;
  if (const int card = card_of(at)) return card;
  bytes = sizeof at;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &bytes) == 0 ? card_of(at) : 0;
}

/// Counts the bytes of each network interface. A test can make one interface slow, break it, or change its frames.
class CardCalls final : public SocketCalls {
 public:
  int slow = 0;  ///< the interface that sends a little at a time
  int ends = 0;  ///< the interface that ends, after `ends_after` bytes; -1: each interface
  std::size_t ends_after = 0;
  int ends_with = ECONNRESET;  ///< errno of the broken interface; only ECONNRESET reaches the peer
  std::size_t lost = 0;        ///< the bytes before the end that are accepted and do not arrive
  std::uint64_t excess = 0;    ///< added to the number of received bytes that a moved lane sends first
  int lies = 0;                ///< the interface whose part frames `change` rewrites
  std::function<void(FrameHeader&)> change;
  std::atomic<std::size_t> sent[4] = {};

  ssize_t send(int fd, const iovec* parts, int count) override {
    const int n = card_of(fd) & 3;
    if (n == 0) return SocketCalls::send(fd, parts, count);
    const bool this_ends = n == ends || ends < 0;
    if (this_ends && sent[n] >= ends_after) {
      if (ends_with == ECONNRESET) ::shutdown(fd, SHUT_RDWR);
      errno = ends_with;
      return -1;
    }
    if (this_ends && ends_with != ECONNRESET) {
      const std::size_t room = ends_after - sent[n], whole = room > lost ? room - lost : 0;
      const std::size_t bytes = std::min(parts[0].iov_len, whole > 0 ? whole : room);
      const iovec part{parts[0].iov_base, bytes};
      const ssize_t done = whole > 0 ? SocketCalls::send(fd, &part, 1) : static_cast<ssize_t>(bytes);
      if (done > 0) sent[n] += static_cast<std::size_t>(done);
      return done;
    }
    if (std::uint64_t lie = 0; excess != 0 && parts[0].iov_len == sizeof lie) {
      std::memcpy(&lie, parts[0].iov_base, sizeof lie);
      lie += excess;
      const iovec part{&lie, sizeof lie};
      return SocketCalls::send(fd, &part, 1);
    }
    if (n == slow && ++turn_ % 50 != 0) {
      errno = EAGAIN;
      return -1;
    }
    FrameHeader header;
    if (n == lies && parts[0].iov_len == sizeof header) {
      std::memcpy(&header, parts[0].iov_base, sizeof header);
      if (header.kind == FrameKind::piece) {
        change(header);
        const iovec lie{&header, sizeof header};
        return SocketCalls::send(fd, &lie, 1);
      }
    }
    const iovec little{parts[0].iov_base, std::min<std::size_t>(parts[0].iov_len, 8 << 10)};
    const ssize_t done = n == slow ? SocketCalls::send(fd, &little, 1) : SocketCalls::send(fd, parts, count);
    if (done > 0) sent[n] += static_cast<std::size_t>(done);
    return done;
  }

  int unacknowledged(int fd) override {
    return lost > 0 && (card_of(fd) & 3) == ends ? -1 : SocketCalls::unacknowledged(fd);
  }

 private:
  std::atomic<int> turn_{0};
};

/// Runs two ranks on two hosts with the given number of network interfaces. Returns the error of each rank.
std::vector<std::string> run_cards(int cards, CardCalls* calls, const std::function<void(Transport&)>& f,
                                   TcpOptions (*way)(int) = by_tcp) {
  const auto options = [&](int r) {
    TcpOptions o = way(r);
    for (int n = 1; n <= cards; ++n)
      o.cards.push_back(
          card("127.0." + std::to_string(n) + "." + std::to_string(r + 1) + "/120/0/c" + std::to_string(n)));
    if (calls) o.calls = &calls[r];
    return o;
  };
  return run_tcp(2, f, options, {0, 1});
}

/// Repeats the exchange so often that the lanes of the further network interfaces are up meanwhile.
void large_ones(Transport& t) {
  std::vector<std::size_t> sizes{8 << 20, 10, (1 << 20) + 3, 40 << 10, 32 << 10, 3 << 20};
  if (under_sanitizer) sizes = {10, (1 << 20) + 3, 40 << 10, 32 << 10, 700 << 10};
  for (int round = 0; round < 12; ++round) exchange_all(t, sizes);
}

}  // namespace

TEST_CASE("interfaces: the loopback address is there if it is named, or if nothing else is") {
  std::vector<CardAddress> cards;
  const std::vector<Address> loopback{loopback_address};
  CHECK(addresses_of_host("lo", &cards) == loopback);
  CHECK(addresses_of_host("no_such_interface,127.0.0.0/8", &cards) == loopback);
  CHECK(addresses_of_host("no_such_interface", &cards).empty());
  CHECK(cards.empty());
}

TEST_CASE("networks that two hosts share, by different network interfaces") {
  const auto ways = [](std::vector<std::string> own, std::vector<std::string> theirs) {
    std::vector<CardAddress> a, b;
    for (const auto& w : own) a.push_back(card(w));
    for (const auto& w : theirs) b.push_back(card(w));
    std::string there, back;
    for (const SharedNetwork& n : shared_networks(a, b)) there += to_text(n.own.at) + " ";
    for (const SharedNetwork& n : shared_networks(b, a)) back += to_text(n.theirs.at) + " ";
    CHECK(there == back);
    return there;
  };
  CHECK(ways({"10.0.0.1/120/1000/a", "10.1.0.1/120/2500/b"}, {"10.0.0.2/120/1000/x", "10.1.0.2/120/2500/y"}) ==
        "10.1.0.1 10.0.0.1 ");
  // both kinds of address on one network interface are one way, and so are two networks of one network interface
  CHECK(ways({"10.0.0.1/120/0/a", "fd00::1/64/0/a", "10.1.0.1/120/0/b"},
             {"10.0.0.2/120/0/a", "fd00::2/64/0/a", "10.1.0.2/120/0/a"}) == "10.0.0.1 ");
  CHECK(ways({"fd00::1/64/0/a", "fd01::1/64/0/b"}, {"fd00::2/64/0/a", "fd01::2/64/0/b"}) == "fd00::1 fd01::1 ");
  // the same address on both is no way (a bridge of containers); nor is another length of the network
  CHECK(ways({"10.0.0.1/120/0/a", "172.17.0.1/112/0/d"}, {"10.0.0.2/120/0/a", "172.17.0.1/112/0/d"}) == "10.0.0.1 ");
  CHECK(ways({"10.0.0.1/120/0/a"}, {"10.0.0.2/112/0/a"}).empty());
  // far slower than the fastest
  CHECK(ways({"10.0.0.1/120/100000/a", "10.1.0.1/120/1000/b"}, {"10.0.0.2/120/100000/a", "10.1.0.2/120/1000/b"}) ==
        "10.0.0.1 ");
  for (const char* bad : {"10.0.0.1/129/0/a", "10.0.0.1/24/x/a", "10.0.0.1/24/0", "x/24/0/a", "10.0.0.1/24/-1/a"})
    CHECK_FALSE(CardAddress::of(bad));
}

TEST_CASE("all network interfaces carry large messages") {
  for (const auto way : {by_tcp, by_tls}) {
    CardCalls calls[2];
    check_none(run_cards(3, calls, large_ones, way));
    for (int n = 1; n <= 3; ++n) CHECK(calls[0].sent[n] + calls[1].sent[n] > 1 << 20);
  }
}

TEST_CASE("a slow network interface carries less, and delays no message") {
  CardCalls calls[2];
  for (CardCalls& c : calls) c.slow = 2;
  check_none(run_cards(2, calls, large_ones));
  CHECK(calls[0].sent[1] > 2 * calls[0].sent[2]);
}

TEST_CASE("a network interface that ends amid a message: its parts go over the others") {
  const std::vector<std::size_t> all = {0, 1000, 300'000, 1'000'000, 3'000'000}, some = {1000, 1'000'000};
  for (const auto way : {by_tcp, by_tls})
    for (const std::size_t after : under_sanitizer ? some : all) {
      CardCalls calls[2];
      calls[0].ends = 2;
      calls[0].ends_after = after;
      check_none(run_cards(2, calls, large_ones, way));
    }
}

/// Control messages, small messages and large ones, in turn.
void all_kinds(Transport& t) {
  for (int round = 0; round < (under_sanitizer ? 10 : 30); ++round) {
    auto body = std::make_shared<std::string>(pattern(static_cast<std::size_t>(round) * 5000, t.rank()));
    const transport::Ticket out = t.isend_shared(1 - t.rank(), Tag::up, body);
    exchange_all(t, {10, 3000, 32 << 10, 600'000});
    if (await(t, Tag::up).body != pattern(body->size(), 1 - t.rank()))
      throw Error(Code::internal, "test", "wrong bytes");
    await(t, out);
  }
}

TEST_CASE("the first network interface ends: small messages go over another one") {
  const std::vector<std::size_t> all = {5000, 40'000, 123'456, 777'777}, some = {40'000, 777'777};
  for (const auto way : {by_tcp, by_tls})
    for (const int who : {0, 1})
      for (const std::size_t after : under_sanitizer ? some : all)
        for (const std::size_t lost : {0, 3333}) {
          CardCalls calls[2];
          calls[who].ends = 1;
          calls[who].ends_after = after;
          calls[who].ends_with = ETIMEDOUT;
          calls[who].lost = lost;
          check_none(run_cards(2, calls, all_kinds, way));
          CHECK(calls[who].sent[1].load() == after);
        }
}

TEST_CASE("the first and the second network interface end, the third carries all") {
  CardCalls calls[2];
  for (const int r : {0, 1}) {
    calls[r].ends = r + 1;
    calls[r].ends_after = 400'000;
    calls[r].ends_with = EHOSTUNREACH;
  }
  check_none(run_cards(3, calls, all_kinds));
}

TEST_CASE("all network interfaces end: the peer is lost by name") {
  CardCalls calls[2];
  for (CardCalls& c : calls) {
    c.ends = -1;
    c.ends_after = 100'000;
    c.ends_with = ETIMEDOUT;
  }
  const auto soon = [](int rank) {  // the limit grows with the load, and await() must be longer
    TcpOptions o = by_tcp(rank);
    o.handshake_seconds = 1;
    return o;
  };
  const auto failures = run_cards(2, calls, all_kinds, soon);
  for (const std::string& f : failures) {
    INFO(f);  // the second rank to notice may see that the first one has left
    CHECK(f.find(") is gone: it") != std::string::npos);
  }
}

TEST_CASE("a peer that lies of the bytes that it has received is told by name") {
  for (const std::uint64_t lie : {std::uint64_t{1} << 40, std::uint64_t{0} - (1 << 20)}) {
    CardCalls calls[2];
    calls[0].ends = 1;
    calls[0].ends_after = 500'000;
    calls[0].ends_with = ETIMEDOUT;
    calls[0].excess = lie;
    const auto failures = run_cards(2, calls, all_kinds);
    CHECK(failures[1].find("rank 0 (127.0.1.1): TCP: a rank ") != std::string::npos);
  }
}

TEST_CASE("given up amid parts, and the rest goes on") {
  check_none(run_cards(2, nullptr, [](Transport& t) {
    for (int round = 0; round < (under_sanitizer ? 5 : 20); ++round) {
      {
        std::string lost = pattern(4 << 20, round), into(lost.size(), 'x');
        const transport::Ticket in = t.irecv(1 - t.rank(), Tag::second, into.data(), into.size());
        const transport::Ticket out = t.isend(1 - t.rank(), Tag::second, lost.data(), lost.size());
        bool left = false;
        for (int i = 0; i < round && !left; ++i) {
          t.nap(100'000);
          left = t.test(out);
        }
        t.abandon(in);
        if (!left) t.abandon(out);
      }
      exchange_all(t, {100, 2'000'000});
    }
  }));
}

TEST_CASE("a peer that lies of its parts is told by name") {
  const std::vector<std::function<void(FrameHeader&)>> lies = {
      [](FrameHeader& h) { h.at += 1; },
      [](FrameHeader& h) { h.at = std::uint64_t{1} << 63; },
      [](FrameHeader& h) { h.bytes = 1 << 30; },
      [](FrameHeader& h) { h.bytes -= 1; },
      [](FrameHeader& h) { h.number += 1000; },
      [](FrameHeader& h) { h.stream = 77; },
      [](FrameHeader& h) { h.kind = FrameKind::done, h.bytes = 0, h.number += 1000; },
      [](FrameHeader& h) { h.kind = static_cast<FrameKind>(99); }};
  for (const auto& lie : lies)
    for (const int n : {1, 2}) {
      CardCalls calls[2];
      calls[0].lies = n;
      calls[0].change = lie;
      const auto failures = run_cards(2, calls, large_ones);
      CHECK(failures[1].find("rank 0 (127.0.1.1)") != std::string::npos);
      CHECK(failures[1].find("TCP: a ") != std::string::npos);
    }
}
