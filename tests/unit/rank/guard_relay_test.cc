/// The messages that the host daemon passes on between its guards and hvdrun.
#include "rank/host/guard_relay.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "wire/channel/channel.h"
#include "wire/channel/relayed_frame.h"

using namespace hvd;
using namespace hvd::rank;

namespace {

/// hvdrun's end: takes as much as it has room for.
class Sink : public wire::Connection {
 public:
  int fd() const override { return -1; }
  std::optional<wire::Frame> receive() override { return std::nullopt; }
  bool send(const wire::Frame& frame) override {
    if (room == 0) return false;
    --room;
    got.push_back(*wire::from_relayed(frame.body));
    return true;
  }
  bool connected() override { return true; }
  std::optional<std::chrono::milliseconds> lost_for() override { return std::nullopt; }
  std::size_t room = 1000;
  std::vector<wire::RelayedFrame> got;
};

struct Host {
  GuardRelay relay;
  Outbox outbox;
  Sink hvdrun;
  std::unique_ptr<wire::Connection> start(int rank) { return wire::connection_over(relay.add(rank)); }
  bool turn() {
    const bool left = relay.turn(outbox);
    outbox.flush(hvdrun);
    return left;
  }
};

}  // namespace

TEST_CASE("guard relay: both ways, to the rank that is meant; the end is told after the last word") {
  Host h;
  auto one = h.start(1), two = h.start(2);
  CHECK(one->connected());
  CHECK(one->send({5, "one"}));
  CHECK(two->send({5, "two"}));
  h.turn();
  REQUIRE(h.hvdrun.got.size() == 2);
  CHECK(h.hvdrun.got[1].rank == 2);
  CHECK(h.hvdrun.got[1].frame.body == "two");
  h.relay.hand_out(wire::relayed(1, {6, "for one"}).body);
  h.relay.hand_out(wire::relayed(7, {6, "for nobody"}).body);
  h.relay.hand_out("nonsense");
  CHECK(one->receive().value().body == "for one");
  CHECK_FALSE(two->receive());
  CHECK(one->send({9, "last"}));
  one.reset();
  for (int i = 0; i < 2; ++i) h.turn();  // its message, and then its end
  REQUIRE(h.hvdrun.got.size() == 4);
  CHECK(h.hvdrun.got[2].frame.body == "last");
  CHECK(h.hvdrun.got[3].frame.type == wire::guard_has_ended);
  CHECK_FALSE(h.relay.is_empty());
  h.relay.hang_up();
  CHECK(h.relay.is_empty());
  CHECK_FALSE(two->receive());
  CHECK(two->lost_for());
}

TEST_CASE("guard relay: while hvdrun is behind, a guard's words wait in its own socket, and none is lost") {
  Host h;
  auto guard = h.start(0);
  h.hvdrun.room = 0;
  int sent = 0;
  for (const std::string piece(64 << 10, 'x'); guard->send({1, piece}) && sent < 1000; ++sent) h.turn();
  CHECK(sent < 1000);
  CHECK(h.outbox.is_full());
  h.hvdrun.room = 100000;
  for (int i = 0; i < 1000 && h.hvdrun.got.size() < static_cast<std::size_t>(sent); ++i) {
    h.turn();
    guard->receive();  // sends the bytes for which the kernel had no room
  }
  CHECK(h.hvdrun.got.size() >= static_cast<std::size_t>(sent));
}

TEST_CASE("guard relay: a guard that does not read fills its queue, not the daemon") {
  Host h;
  auto guard = h.start(0);
  const std::string body = wire::relayed(0, {3, std::string(wire::max_frame_bytes, 'p')}).body;
  int pieces = 0;
  for (; !h.relay.is_full() && pieces < 10; ++pieces) h.relay.hand_out(body);
  CHECK(pieces < 4);
  int received = 0;
  for (int i = 0; i < 100000 && received < pieces; ++i) {
    h.turn();
    if (const auto frame = guard->receive()) received += frame->body.size() == wire::max_frame_bytes;
  }
  CHECK(received == pieces);
  CHECK_FALSE(h.relay.is_full());
}
