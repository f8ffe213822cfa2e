/// A rank of the job that sends arbitrary bytes: the error names it, and no memory is damaged.
#include <doctest/doctest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tcp_ranks.h"
#include "transport/tcp/carry/messages.h"

using namespace hvd;
using namespace hvd::testing;
using namespace hvd::transport;
using namespace hvd::transport::tcp;

namespace {

constexpr std::size_t large = 300'000;

/// The transport of rank 0 in a world of two. The test plays rank 1 and writes the bytes of its lanes.
class HostilePeer {
 public:
  HostilePeer() : messages_(std::make_unique<Messages>(plan(), calls_)) {
    for (std::uint32_t n = 0; n < 2; ++n) {
      const CallAddress to = call_address(path_);
      lanes_.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      REQUIRE(::connect(lanes_[n].get(), reinterpret_cast<const sockaddr*>(&to.at), to.bytes) == 0);
      const Caller caller{1, 0, n, 0, 7};
      send(n, &caller, sizeof caller);
    }
    wait([&] { return messages_->connections() == 2; });
    REQUIRE(messages_->connections() == 2);
  }
  Messages& messages() { return *messages_; }
  void header(std::size_t lane, FrameKind kind, std::size_t bytes, std::uint32_t number = 0, Tag tag = Tag::data) {
    FrameHeader h;
    h.kind = kind;
    h.tag = static_cast<std::uint8_t>(tag);
    h.number = number;
    h.bytes = static_cast<std::uint32_t>(bytes);
    send(lane, &h, sizeof h);
  }
  /// @p bytes of a frame, read by the messages.
  void body(std::size_t lane, std::size_t bytes) {
    const std::string some(50'000, 'x');
    for (std::size_t left = bytes; left > 0;) {
      const std::size_t part = std::min(left, some.size());
      send(lane, some.data(), part);
      left -= part;
      settle();
    }
  }
  /// The messages reads all that was sent, unless it has given the peer up.
  void settle() {
    wait([&] {
      for (const Fd& lane : lanes_)
        if (int unread = 0; ::ioctl(lane.get(), SIOCOUTQ, &unread) == 0 && unread > 0) return false;
      return true;
    });
  }
  /// Returns the reason of the peer's loss; empty: it is not lost.
  std::string lost() {
    settle();
    return messages_->lost().empty() ? "" : messages_->lost().front().text;
  }

 private:
  void send(std::size_t lane, const void* bytes, std::size_t count) {
    (void)!::send(lanes_[lane].get(), bytes, count, MSG_NOSIGNAL);
  }
  template <class F>
  void wait(F&& over) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < end && messages_->lost().empty()) {
      messages_->progress();
      if (over()) break;
      messages_->nap(1'000'000);
    }
    messages_->nap(1000);
    messages_->progress();
  }
  LinkPlan plan() {
    LinkPlan plan;
    plan.rank = 0;
    plan.hosts = {0, 0};
    plan.leave_seconds = 0;
    plan.ranks.resize(2);
    plan.local = UnixListener::open();
    path_ = plan.local->path();
    plan.ranks[0].world = 7;
    plan.ranks[0].path = path_;
    plan.ranks[1].world = 8;
    plan.ranks[1].path = "@nobody";
    return plan;
  }

  SocketCalls calls_;
  std::string path_;
  std::unique_ptr<Messages> messages_;
  std::vector<Fd> lanes_;
};

/// Checks that the receive of a large message fails with an error that names the peer, and that its buffer equals @p
/// memory.
void check_refused(HostilePeer& peer, Ticket receive) {
  CHECK(peer.lost() == "rank 1: TCP: a part of a message came twice");
  CHECK_THROWS_WITH_AS(peer.messages().test(receive), "rank 1: TCP: a part of a message came twice", Error);
  peer.messages().abandon(receive);
}

}  // namespace

TEST_CASE("one part on two lanes: refused, and memory that was given back is not written") {
  HostilePeer peer;
  std::string memory(large, 'm');
  const Ticket receive = peer.messages().receive({1, 0, Tag::data}, memory.data(), large);
  peer.header(1, FrameKind::piece, large);
  peer.body(1, 40'000);
  peer.header(0, FrameKind::piece, large);
  check_refused(peer, receive);
  std::fill(memory.begin(), memory.end(), 'z');
  peer.body(0, large);
  peer.body(1, large - 40'000);
  CHECK(memory == std::string(large, 'z'));
}

TEST_CASE("parts that overlap: refused, and the receive does not wait for ever") {
  HostilePeer peer;
  std::string memory(large, 'm');
  const Ticket receive = peer.messages().receive({1, 0, Tag::data}, memory.data(), large);
  peer.header(1, FrameKind::piece, large);
  peer.body(1, 40'000);
  peer.header(0, FrameKind::piece, 200'000);
  CHECK(peer.lost() == "rank 1: TCP: a part came that is not of its message");
  CHECK_THROWS_AS(peer.messages().test(receive), Error);
  peer.messages().abandon(receive);
}

TEST_CASE("frames without bytes, of kinds or in numbers that no rank sends") {
  const auto lost_after = [](const std::function<void(HostilePeer&)>& sends) {
    HostilePeer peer;
    sends(peer);
    return peer.lost();
  };
  const std::string unknown = "rank 1: TCP: a frame came that no rank of this version sends";
  CHECK(lost_after([](HostilePeer& p) { p.header(1, FrameKind::room, 0); }) == unknown);
  CHECK(lost_after([](HostilePeer& p) { p.header(0, FrameKind::room, 0, 0, Tag::up); }) == unknown);
  CHECK(lost_after([](HostilePeer& p) { p.header(0, FrameKind::room, 9); }) == unknown);
  CHECK(lost_after([](HostilePeer& p) { p.header(0, FrameKind::done, 0); }) == unknown);
  CHECK(lost_after([](HostilePeer& p) { p.header(0, static_cast<FrameKind>(77), 0); }) == unknown);
  CHECK(lost_after([](HostilePeer& p) { p.header(0, FrameKind::room, 0, 0, static_cast<Tag>(99)); }) == unknown);
  CHECK(lost_after([](HostilePeer& p) { p.header(0, FrameKind::bye, 0, 3); }) ==
        "rank 1: TCP: a goodbye came that no rank of this version says");
  CHECK(lost_after([](HostilePeer& p) {
          for (std::uint32_t n = 0; n <= most_known_rooms; ++n) {
            p.header(0, FrameKind::room, 0, n);
            if (n % 100 == 0) p.settle();
          }
        }) == "rank 1: TCP: a rank is ready for more messages than any can have under way");
  CHECK(lost_after([](HostilePeer& p) {
          for (int n = 0; n < 2; ++n) p.header(0, FrameKind::room, 0, 5);
        }) == "rank 1: TCP: a rank is ready for more messages than any can have under way");
  CHECK(lost_after([](HostilePeer& p) { p.header(0, FrameKind::message, most_control_bytes + 1, 0, Tag::up); }) ==
        unknown);
}

TEST_CASE("a sender waits while the receiver takes nothing, and then all comes in sequence") {
  constexpr std::size_t count = 12'000, bytes = 1000;
  check_none(run_tcp(2, [](Transport& t) {
    const auto text_of = [](std::size_t i) { return std::to_string(i) + std::string(bytes, 'x'); };
    if (t.rank() == 0) {
      std::vector<std::string> texts;
      for (std::size_t i = 0; i < count; ++i) texts.push_back(text_of(i).substr(0, bytes));
      std::vector<Ticket> tickets;
      for (const std::string& s : texts) {
        tickets.push_back(t.isend(1, Tag::data, s.data(), bytes));
        tickets.push_back(t.isend(1, Tag::up, s.data(), bytes));
      }
      await(t, t.isend(1, Tag::down, "sent", 4));
      if (t.test(tickets.back()) || t.test(tickets[tickets.size() - 2]))
        throw Error(Code::internal, "test", "it has left, though nobody takes any");
      await(t, t.isend(1, Tag::exchange, "go", 2));
      for (const Ticket ticket : tickets) await(t, ticket);
      await(t, Tag::down);
      return;
    }
    await(t, Tag::down);
    await(t, Tag::exchange);
    std::string got(bytes, 0);
    for (std::size_t i = 0; i < count; ++i) {
      await(t, t.irecv(0, Tag::data, got.data(), bytes));
      const std::string wanted = text_of(i).substr(0, bytes);
      if (got != wanted || await(t, Tag::up).body != wanted) throw Error(Code::internal, "test", "out of sequence");
    }
    await(t, t.isend(0, Tag::down, "end", 3));
  }));
}

TEST_CASE("sends that wait for the receiver are given up, and the rest goes on") {
  check_none(run_tcp(2, [](Transport& t) {
    const std::string text(eager_bytes, 'x');
    if (t.rank() == 0) {
      for (int round = 0; round < 3; ++round) {
        std::vector<Ticket> tickets;
        for (int i = 0; i < 500; ++i) tickets.push_back(t.isend(1, Tag::up, text.data(), text.size()));
        for (const Ticket ticket : tickets) t.abandon(ticket);
        await(t, t.isend(1, Tag::up, "next", 4));
      }
      await(t, Tag::down);
      return;
    }
    for (int round = 0; round < 3;) round += await(t, Tag::up).body == "next" ? 1 : 0;
    await(t, t.isend(0, Tag::down, "end", 3));
  }));
}

TEST_CASE("more large receives than a peer is told of at once") {
  check_none(run_tcp(2, [](Transport& t) {
    const std::size_t bytes = eager_bytes + 1, count = most_rooms + 200;
    std::string memory(bytes * count, t.rank() == 0 ? 'x' : 'm');
    std::vector<Ticket> tickets;
    if (t.rank() == 0) await(t, Tag::up);
    for (std::size_t i = 0; i < count; ++i)
      tickets.push_back(t.rank() == 0 ? t.isend(1, Tag::data, memory.data() + i * bytes, bytes)
                                      : t.irecv(0, Tag::data, memory.data() + i * bytes, bytes));
    if (t.rank() == 1) await(t, t.isend(0, Tag::up, "posted", 6));
    for (const Ticket ticket : tickets) await(t, ticket);
    if (memory != std::string(memory.size(), 'x')) throw Error(Code::internal, "test", "wrong bytes");
  }));
}

TEST_CASE("streams of sets that were removed: what they left behind reaches no later one") {
  check_none(run_tcp(2, [](Transport& t) {
    std::deque<std::unique_ptr<Transport>> sets;
    for (int change = 0; change < 200; ++change) {
      // The set numbers are those after 65 400 changes, and pass 65 535. Rank 1 drops old sets later than rank 0.
      sets.push_back(t.split({0, 1}, 65'400 + change));
      if (sets.size() > (t.rank() == 0 ? 1 : 4)) sets.pop_front();
      Transport& set = *sets.back();
      const std::string text = std::to_string(change);
      char left = 0;
      const Ticket never = set.irecv(1 - t.rank(), Tag::second, &left, 1);
      if (t.rank() == 0) {
        for (int i = 0; i < 3; ++i) await(set, set.isend(1, Tag::data, text.data(), text.size()));
        await(set, set.isend(1, Tag::up, "left", 4));
      } else {
        std::string got(text.size(), 0);
        await(set, set.irecv(0, Tag::data, got.data(), got.size()));
        if (got != text) throw Error(Code::internal, "test", "of another set: " + got);
      }
      set.abandon(never);
      exchange_all(t, {1});  // as ranks agree on each change
    }
  }));
}
