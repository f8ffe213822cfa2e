/// The receiving end alone: the frames that peers may send, and the limit of the memory that is kept.
#include "transport/tcp/carry/receives.h"

#include <doctest/doctest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "transport/tcp/carry/part_sender.h"

using namespace hvd;
using namespace hvd::transport;
using namespace hvd::transport::tcp;

namespace {

constexpr std::size_t of_test = 300'000;

/// Lanes of one peer. The test decides when their bytes arrive.
class PeerOfTest final : public ReceivesUser {
 public:
  explicit PeerOfTest(int bulk_lanes = 1, bool repeats = false)
      : receives(*this, streams, bulk_lanes), repeats_(repeats) {}

  void answer(FrameKind kind, const Channel&, std::uint32_t number, std::uint64_t at) override {
    if (kind == FrameKind::room) rooms.push_back(number);
    if (kind == FrameKind::credit) credit += at;
    if (kind == FrameKind::done) done.push_back(number);
  }
  void received(Ticket ticket) override { got.insert(ticket); }
  bool parts_repeat(int) override { return repeats_; }
  void drop_arriving(int, const std::function<bool(const FrameHeader&)>& drops) override {
    for (LaneOfTest& l : lanes)
      if (l.target && drops(l.header)) l.target = nullptr;
  }

  static FrameHeader header(FrameKind kind, std::uint32_t number, std::size_t bytes, std::uint64_t at = 0,
                            Tag tag = Tag::data, int stream = 0) {
    FrameHeader h;
    h.kind = kind;
    h.tag = static_cast<std::uint8_t>(tag);
    h.stream = static_cast<std::uint32_t>(stream);
    h.number = number;
    h.bytes = static_cast<std::uint32_t>(bytes);
    h.at = at;
    return h;
  }
  void begin(int lane, const FrameHeader& h, int from = 1) { lanes[lane] = {h, receives.place({from, lane}, h)}; }
  void end(int lane, char fill = 'x', int from = 1) {
    LaneOfTest& l = lanes[lane];
    if (l.target) std::fill_n(l.target, l.header.bytes, static_cast<unsigned char>(fill));
    l.target = nullptr;
    receives.arrived({from, lane}, l.header);
  }
  void whole(int lane, const FrameHeader& h, char fill = 'x', int from = 1) {
    begin(lane, h, from);
    end(lane, fill, from);
  }

  struct LaneOfTest {
    FrameHeader header;
    unsigned char* target = nullptr;
  };
  LaneOfTest lanes[4];
  StreamTable streams;
  Receives receives;
  std::vector<std::uint32_t> rooms, done;
  std::uint64_t credit = 0;
  std::set<Ticket> got;

 private:
  const bool repeats_;
};

/// Returns the text of the error that begin() throws for the frame; empty: no error.
std::string refused(PeerOfTest& peer, int lane, const FrameHeader& h, int from = 1) {
  try {
    peer.begin(lane, h, from);
    return "";
  } catch (const Error& e) { return e.what(); }
}

constexpr const char* not_of_ours = "TCP: a frame came that no rank of this version sends";
const Channel from_peer{1, 0, Tag::data};

}  // namespace

TEST_CASE("receives: a part that comes on two lanes is refused before a byte of it is written") {
  for (const int bulk_lanes : {1, 3}) {
    PeerOfTest peer(bulk_lanes);
    std::string memory(of_test, 'm');
    CHECK(peer.receives.post(from_peer, memory.data(), of_test, 7) == 0);
    CHECK(peer.rooms == std::vector<std::uint32_t>{0});
    const FrameHeader part =
        PeerOfTest::header(FrameKind::piece, 0, bulk_lanes == 1 ? of_test : PartSender::part_bytes);
    peer.begin(1, part);
    CHECK(refused(peer, 2, part) == "TCP: a part of a message came twice");
    peer.end(1);
    CHECK(peer.got.count(7) == (bulk_lanes == 1 ? 1 : 0));
    CHECK(refused(peer, 2, part) == (bulk_lanes == 1 ? not_of_ours : "TCP: a part of a message came twice"));
  }
}

TEST_CASE("receives: parts that are not those of the message are refused") {
  for (const int bulk_lanes : {1, 3}) {
    PeerOfTest peer(bulk_lanes);
    std::string memory(of_test, 'm'), small(10, 'm');
    peer.receives.post(from_peer, memory.data(), of_test, 7);
    peer.receives.post(from_peer, small.data(), small.size(), 8);
    const std::string other = "TCP: a part came that is not of its message";
    for (const auto& [at, bytes] : std::vector<std::pair<std::uint64_t, std::size_t>>{
             {0, 200'000}, {1, of_test - 1}, {of_test, 0}, {0, of_test + 1}, {100, 100}, {~0ull << 18, 256 << 10}})
      CHECK(refused(peer, 1, PeerOfTest::header(FrameKind::piece, 0, bytes, at)) == other);
    CHECK(refused(peer, 1, PeerOfTest::header(FrameKind::piece, 1, 10)) == not_of_ours);  // a small one has no parts
    CHECK(refused(peer, 1, PeerOfTest::header(FrameKind::piece, 2, of_test)) == not_of_ours);
    CHECK(refused(peer, 1, PeerOfTest::header(FrameKind::piece, 0, 10, 0, Tag::up)) == not_of_ours);
    CHECK(refused(peer, 0, PeerOfTest::header(FrameKind::message, 0, of_test)) == not_of_ours);
    CHECK(refused(peer, 0, PeerOfTest::header(FrameKind::message, 1, 11)) ==
          "TCP: a message has another length than its receive");
    CHECK(peer.got.empty());
  }
}

TEST_CASE("receives: small messages have one lane, and each comes once") {
  PeerOfTest peer;
  std::string memory(10, 'm');
  CHECK(refused(peer, 1, PeerOfTest::header(FrameKind::message, 0, 10)) == not_of_ours);
  CHECK(refused(peer, 1, PeerOfTest::header(FrameKind::message, 0, 10, 0, Tag::up)) == not_of_ours);
  peer.whole(0, PeerOfTest::header(FrameKind::message, 0, 10), 'a');
  CHECK(refused(peer, 0, PeerOfTest::header(FrameKind::message, 0, 10)) == not_of_ours);
  CHECK_FALSE(peer.receives.post(from_peer, memory.data(), 10, 7));  // the message has arrived
  CHECK(memory == std::string(10, 'a'));
  CHECK(refused(peer, 0, PeerOfTest::header(FrameKind::message, 0, 10)) == not_of_ours);
  peer.whole(0, PeerOfTest::header(FrameKind::message, 1, 3));
  CHECK_THROWS_WITH_AS(peer.receives.post(from_peer, memory.data(), 10, 7),
                       "TCP: a message has another length than its receive", Error);
  for (const int tag : {0, 7, 255}) {
    FrameHeader h = PeerOfTest::header(FrameKind::message, 2, 1);
    h.tag = static_cast<std::uint8_t>(tag);
    CHECK(refused(peer, 0, h) == not_of_ours);
  }
}

TEST_CASE("receives: where parts repeat, the second copy never reaches memory that was given back") {
  PeerOfTest peer(1, true);
  std::string memory(of_test, 'm');
  peer.receives.post(from_peer, memory.data(), of_test, 7);
  const FrameHeader first = PeerOfTest::header(FrameKind::piece, 0, PartSender::part_bytes),
                    last = PeerOfTest::header(FrameKind::piece, 0, of_test - PartSender::part_bytes,
                                              PartSender::part_bytes);
  peer.begin(1, first);
  peer.begin(2, first);
  peer.begin(3, last);
  peer.end(1, 'a');
  CHECK(peer.lanes[2].target == nullptr);
  peer.end(3, 'b');
  CHECK(peer.got.count(7) == 1);
  CHECK(peer.done == std::vector<std::uint32_t>{0});
  std::fill(memory.begin(), memory.end(), 'z');
  peer.end(2);
  peer.whole(1, first);
  CHECK(memory == std::string(of_test, 'z'));
  CHECK(peer.done.size() == 1);
}

TEST_CASE("receives: what was abandoned, or its stream closed, is not written any more") {
  for (const bool closes : {false, true}) {
    PeerOfTest peer;
    peer.streams.open(3, {0, 1});
    const Channel channel{1, 3, Tag::data};
    std::string memory(of_test, 'm'), small(10, 'm');
    const auto number = peer.receives.post(channel, memory.data(), of_test, 7);
    const auto next = peer.receives.post(channel, small.data(), 10, 8);
    peer.begin(1, PeerOfTest::header(FrameKind::piece, *number, of_test, 0, Tag::data, 3));
    peer.begin(0, PeerOfTest::header(FrameKind::message, *next, 10, 0, Tag::data, 3));
    if (closes) {
      peer.streams.close(3);
      peer.receives.forget(3);
    } else {
      peer.receives.abandon(channel, *number);
      peer.receives.abandon(channel, *next);
    }
    peer.end(0);
    peer.end(1);
    CHECK(memory == std::string(of_test, 'm'));
    CHECK(small == std::string(10, 'm'));
    CHECK(peer.got.empty());
    CHECK(peer.receives.channels() == (closes ? 0 : 1));
  }
}

TEST_CASE("receives: the messages without a receive are bounded, by bytes and by number") {
  for (const std::size_t bytes : {std::size_t{0}, eager_bytes})
    for (const Tag tag : {Tag::data, Tag::up}) {
      PeerOfTest peer;
      std::uint32_t number = 0;
      std::string why;
      for (; number < 1'000'000; ++number) {
        const FrameHeader h = PeerOfTest::header(FrameKind::message, number, bytes, 0, tag);
        why = refused(peer, 0, h);
        if (!why.empty()) break;
        peer.end(0);
      }
      CHECK(why == "TCP: a rank has sent more messages than this rank has granted");
      CHECK(peer.receives.kept_bytes() <= most_untaken_bytes + counted_bytes(bytes));
      CHECK(number > most_untaken_bytes / counted_bytes(bytes));
    }
}

TEST_CASE("receives: a message that is taken gives its credit back") {
  for (const Tag tag : {Tag::data, Tag::up})
    for (const bool early : {false, true}) {
      PeerOfTest peer;
      std::string memory(1000, 'm');
      const std::uint32_t count = 20'000;
      for (std::uint32_t number = 0; number < count; ++number) {
        const FrameHeader h = PeerOfTest::header(FrameKind::message, number, memory.size(), 0, tag);
        if (tag == Tag::data && !early) peer.receives.post(from_peer, memory.data(), memory.size(), 7);
        peer.whole(0, h);
        if (tag == Tag::data && early) peer.receives.post(from_peer, memory.data(), memory.size(), 7);
        if (tag == Tag::up) CHECK(peer.receives.poll(0, tag).has_value());
      }
      CHECK(peer.receives.kept_bytes() == 0);
      CHECK(peer.credit <= count * counted_bytes(memory.size()));
      CHECK(peer.credit + credit_bytes > count * counted_bytes(memory.size()));
    }
}

TEST_CASE("receives: the peer knows of a limited number of large ones, and of more when those have arrived") {
  PeerOfTest peer;
  std::string memory(eager_bytes + 1, 'm');
  const std::uint32_t count = 3 * most_rooms;
  for (std::uint32_t number = 0; number < count; ++number)
    peer.receives.post(from_peer, memory.data(), memory.size(), number + 1);
  CHECK(peer.rooms.size() == most_rooms);
  CHECK(refused(peer, 1, PeerOfTest::header(FrameKind::piece, most_rooms, memory.size())) == not_of_ours);
  peer.receives.abandon(from_peer, 5);  // its message may never come
  CHECK(peer.rooms.size() == most_rooms + 1);
  for (std::uint32_t number = 0; number < count; ++number)
    if (number != 5) peer.whole(1, PeerOfTest::header(FrameKind::piece, number, memory.size()));
  CHECK(peer.rooms.size() == count);
  CHECK(peer.got.size() == count - 1);
}

TEST_CASE("receives: streams that are closed, to come, and of others") {
  PeerOfTest peer;
  CHECK(peer.streams.open(70'000, {0, 1}).empty());
  peer.whole(0, PeerOfTest::header(FrameKind::message, 0, 10, 0, Tag::up, 70'000));
  peer.streams.close(70'000);
  peer.receives.forget(70'000);
  CHECK(peer.receives.channels() == 0);
  CHECK_FALSE(peer.receives.poll(70'000, Tag::up));
  for (int i = 0; i < 1000;
       ++i)  // of a closed one, or one that this rank has never opened: dropped, and nothing is kept
    for (const int stream : {70'000, 4, 1})
      peer.whole(0, PeerOfTest::header(FrameKind::message, 0, 10, 0, Tag::up, stream));
  peer.whole(1, PeerOfTest::header(FrameKind::piece, 0, of_test, 0, Tag::data, 70'000));
  CHECK(peer.receives.channels() == 0);
  CHECK_THROWS_AS(peer.streams.open(70'000, {0, 1}), Error);

  peer.whole(0, PeerOfTest::header(FrameKind::message, 0, 10, 0, Tag::up, 70'001));  // about to be opened
  peer.whole(0, PeerOfTest::header(FrameKind::message, 0, 10, 0, Tag::up, 70'002));
  CHECK(peer.streams.open(70'002, {0, 1}) == std::vector<int>{70'001});
  CHECK(peer.receives.poll(70'002, Tag::up)->from == 1);
  CHECK(refused(peer, 0, PeerOfTest::header(FrameKind::message, 0, 10, 0, Tag::up, 70'002), 2) ==
        "TCP: a frame came for a process set that its sender is not in");
  std::string why;
  for (int stream = 80'000; stream < 80'100 && why.empty(); ++stream)
    why = refused(peer, 0, PeerOfTest::header(FrameKind::message, 0, 0, 0, Tag::up, stream));
  CHECK(why == "TCP: frames came for more process sets than can be under way at once");
  CHECK(refused(peer, 0, PeerOfTest::header(FrameKind::message, 0, 0, 0, Tag::up, -1)) == not_of_ours);
}
