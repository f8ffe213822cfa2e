/// Guards behind a host daemon, as hvdrun sees them: peers of their own.
#include "wire/channel/relayed_frame.h"

#include "base/error.h"
#include "channel_pair.h"
#include "wire/messages/message.h"

using namespace hvd;
using namespace hvd::wire;
using namespace hvd::test;

TEST_CASE("relay: a frame comes back as it went; one cut short is refused") {
  const Frame frame = relayed(0x01020304, {777, std::string("a\0b", 3)});
  CHECK(frame.type == static_cast<std::uint16_t>(Type::relayed));
  const auto back = from_relayed(frame.body);
  REQUIRE(back);
  CHECK(back->rank == 0x01020304);
  CHECK(back->frame.type == 777);
  CHECK(back->frame.body == std::string("a\0b", 3));
  CHECK(from_relayed(frame.body.substr(0, relay_header_bytes))->frame.body.empty());
  CHECK_FALSE(from_relayed(frame.body.substr(0, relay_header_bytes - 1)));
}

TEST_CASE("relay: each guard is a peer; the largest frame goes through; the end of one, and of all") {
  ChannelPair p("tcp://127.0.0.1:*");
  for (const std::uint32_t rank : {3, 4}) CHECK(p.connection->send(relayed(rank, {7, "hello"})));
  CHECK(p.connection->send({8, "of the daemon"}));
  const auto third = p.receive(), fourth = p.receive(), daemon = p.receive();
  CHECK(third.from != fourth.from);
  CHECK(third.frame.type == 7);
  CHECK(daemon.frame.body == "of the daemon");
  CHECK(p.listener->send(fourth.from, {9, std::string(max_frame_bytes, 'x')}));
  const auto answer = from_relayed(p.answer().body);
  REQUIRE(answer);
  CHECK(answer->rank == 4);
  CHECK(answer->frame.body.size() == max_frame_bytes);

  CHECK(p.connection->send(relayed(3, {guard_has_ended, {}})));
  CHECK(p.connection->send(relayed(5, {guard_has_ended, {}})));  // the guard has sent nothing
  CHECK(p.connection->send({8, "after"}));
  CHECK(p.receive().frame.body == "after");
  CHECK(p.listener->gone() == third.from);
  CHECK(p.listener->gone() == std::nullopt);
  CHECK_THROWS_AS(p.listener->send(third.from, {1, ""}), Error);
  CHECK(p.listener->send(fourth.from, {1, ""}));

  p.connection.reset();
  std::vector<PeerId> gone;
  CHECK(eventually([&] {
    while (const auto peer = p.listener->gone()) gone.push_back(*peer);
    return gone.size() == 2;
  }));
  CHECK(gone == std::vector<PeerId>{fourth.from, daemon.from});
}
