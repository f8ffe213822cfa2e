#include "transport/tcp/connect/handshake.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "transport/tcp/connect/listen_address.h"

using namespace hvd;
using namespace hvd::transport::tcp;

namespace {

JobKey key_of(unsigned char first) {
  JobKey key{};
  key[0] = first;
  return key;
}

/// Carries bytes in both directions until nothing moves. Returns true if no side has refused.
bool carry(Handshake& a, Handshake& b) {
  for (int i = 0; i < 20; ++i) {
    const std::string there = a.give(), back = b.give();
    if (there.empty() && back.empty()) return true;
    if (!there.empty() && !b.take(there.data(), there.size())) return false;
    if (!back.empty() && !a.take(back.data(), back.size())) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a handshake with one key") {
  const KeyContext context(key_of(1));
  Handshake caller(context, {3, 5, 1, 1, 77}), listener(context);
  CHECK(carry(caller, listener));
  REQUIRE(listener.introduced());
  CHECK(listener.caller().from == 3);
  CHECK(listener.caller().to == 5);
  CHECK(listener.caller().lane == 1);
  CHECK(listener.caller().encrypts == 1);
  CHECK(listener.caller().world == 77);
  CHECK(caller.welcome() == Welcome::none);
  listener.answer(Welcome::yes);
  const std::string answer = listener.give() + "what follows is plain";
  CHECK(caller.take(answer.data(), answer.size()));
  CHECK(caller.welcome() == Welcome::yes);
  CHECK(caller.rest() == "what follows is plain");
}

TEST_CASE("a handshake byte by byte") {
  const KeyContext context(key_of(1));
  Handshake caller(context, {0, 1, 0, 0, 1}), listener(context);
  for (int i = 0; i < 20; ++i) {
    for (const char c : caller.give()) CHECK(listener.take(&c, 1));
    for (const char c : listener.give()) CHECK(caller.take(&c, 1));
  }
  CHECK(listener.introduced());
}

TEST_CASE("a handshake with another key") {
  const KeyContext ours(key_of(1)), theirs(key_of(2));
  Handshake caller(theirs, {0, 1, 0, 0, 1}), listener(ours);
  CHECK(!carry(caller, listener));
  CHECK(!listener.introduced());
  CHECK(caller.welcome() == Welcome::none);
}

TEST_CASE("what is no handshake") {
  const KeyContext context(key_of(1));
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, '\0'), std::string(300, '\xff'),
        std::string("\x16\x03\x01\xff\xff", 5) + std::string(20000, 'x')}) {
    Handshake listener(context);
    listener.take(text.data(), text.size());
    CHECK(!listener.introduced());
    Handshake caller(context, {0, 1, 0, 0, 1});
    caller.take(text.data(), text.size());
    CHECK(caller.welcome() == Welcome::none);
  }
}

TEST_CASE("where a rank listens, as text") {
  ListenAddress a{4711, 99, {loopback_address, {0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}}};
  const ListenAddress b = ListenAddress::of(a.text());
  CHECK(b.port == 4711);
  CHECK(b.world == 99);
  CHECK(b.addresses == a.addresses);
  CHECK(a.text() == "4711 99 127.0.0.1 2001:db8::7");
  for (const char* bad : {"", "4711", "4711 0", "4711 1 nowhere", "x 1"})
    CHECK_THROWS_AS(ListenAddress::of(bad), Error);
}

TEST_CASE("the nearest address comes first") {
  const auto of = [](const char* text) { return ListenAddress::of(std::string("1 1 ") + text).addresses; };
  const ListenAddress peer = ListenAddress::of("1 1 172.17.0.1 fd00::5 10.1.2.3");
  const auto sorted = by_nearness(peer, of("10.1.9.9"));
  REQUIRE(sorted.size() == 3);
  CHECK(to_text(sorted[0]) == "10.1.2.3");
  CHECK(to_text(by_nearness(peer, of("fd00::9"))[0]) == "fd00::5");
}
