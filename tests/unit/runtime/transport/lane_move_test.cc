/// A lane that moves to another connection: each frame arrives once, whatever the former connection has lost.
#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tcp_ranks.h"
#include "transport/tcp/stream/lane.h"

using namespace hvd;
using namespace hvd::testing;
using namespace hvd::transport::tcp;

namespace {

/// The number of unacknowledged bytes is the test's.
class Acknowledgements final : public SocketCalls {
 public:
  int missing = INT_MAX;
  int unacknowledged(int) override { return missing; }
  void announce_from(int, int) override {}
};

/// One end of a connection over two strings. send() accepts `room` bytes in all, then returns EAGAIN.
class StringStream final : public ByteStream {
 public:
  StringStream(std::string& in, std::string& out, std::size_t room = SIZE_MAX) : in_(in), out_(out), room_(room) {}

  ssize_t send(const iovec* parts, int count) override {
    std::size_t taken = 0;
    for (int i = 0; i < count; ++i) {
      const std::size_t bytes = std::min(parts[i].iov_len, room_);
      out_.append(static_cast<const char*>(parts[i].iov_base), bytes);
      taken += bytes;
      room_ -= bytes;
    }
    written_ += taken;
    return taken > 0 ? static_cast<ssize_t>(taken) : again();
  }
  ssize_t receive(const iovec* parts, int count, bool) override {
    std::size_t taken = 0;
    for (int i = 0; i < count; ++i) {
      const std::size_t bytes = in_.copy(static_cast<char*>(parts[i].iov_base), parts[i].iov_len);
      in_.erase(0, bytes);
      taken += bytes;
    }
    return taken > 0 ? static_cast<ssize_t>(taken) : again();
  }
  std::uint64_t written() const override { return written_; }

 private:
  static ssize_t again() {
    errno = EAGAIN;
    return -1;
  }
  std::string &in_, &out_;
  std::size_t room_;
  std::uint64_t written_ = 0;
};

/// Records the frames that arrive, and drops every third payload. Overwrites the memory of frames that were sent.
class Recorder final : public FrameHandler {
 public:
  unsigned char* place(Lane&, const FrameHeader& h) override {
    body.assign(h.bytes, '-');
    return h.number % 3 == 2 ? nullptr : reinterpret_cast<unsigned char*>(body.data());
  }
  void arrived(Lane&, const FrameHeader& h) override {
    numbers.push_back(h.number);
    bodies.push_back(body);
  }
  void left(Lane&, const OutFrame& frame) override {
    if (frame.ticket != 0) sent.at(frame.ticket - 1).assign(frame.header.bytes, '!');
  }
  std::string body;
  std::vector<std::uint32_t> numbers;
  std::vector<std::string> bodies;
  std::deque<std::string> sent;
};

const std::vector<std::size_t> frame_sizes = {0, 5, 40'000, 1, 3000, 0, 20'000};

/// Two lanes, each with frames for the other one.
struct Ends {
  /// The first connection accepts @p room bytes of each end.
  explicit Ends(std::size_t room) {
    for (const int e : {0, 1}) {
      lanes[e] = std::make_unique<Lane>(calls[e], handlers[e], Fd(),
                                        std::make_unique<StringStream>(wires[1 - e], wires[e], room), 1 - e, 0);
      lanes[e]->keeps = lanes[e]->is_local = true;
    }
  }
  void add_frames(int e) {
    for (const std::size_t bytes : frame_sizes) {
      OutFrame frame;
      handlers[e].sent.push_back(pattern(bytes, static_cast<int>(++count)));
      frame.header.number = static_cast<std::uint32_t>(handlers[e].sent.size() - 1);
      frame.header.bytes = static_cast<std::uint32_t>(bytes);
      frame.data = handlers[e].sent.back().data();
      frame.ticket = handlers[e].sent.size();
      wanted[1 - e].push_back(frame.header.number % 3 == 2 ? std::string(bytes, '-') : handlers[e].sent.back());
      lanes[e]->add(std::move(frame));
    }
  }
  void send_all() {
    for (int round = 0; round < 20; ++round)
      for (const int e : {0, 1}) CHECK(lanes[e]->send() == 0);
  }
  void receive_all() {
    for (const int e : {0, 1})
      while (!wires[1 - e].empty()) CHECK(lanes[e]->receive() == 0);
  }
  /// Loses all bytes in flight in each direction except the first @p bytes.
  void lose_after(std::size_t bytes) {
    for (std::string& wire : wires) wire.resize(std::min(bytes, wire.size()));
  }
  /// Gives both lanes a new connection; bytes in flight are lost.
  void move() {
    for (std::string& wire : wires) wire.clear();
    for (const int e : {0, 1}) lanes[e]->resume(Fd(), std::make_unique<StringStream>(wires[1 - e], wires[e]));
  }
  void check_arrived() {
    for (int round = 0; round < 5; ++round) {
      send_all();
      receive_all();
    }
    for (const int e : {0, 1}) {
      CHECK(handlers[e].bodies == wanted[e]);
      for (std::size_t i = 0; i < handlers[e].numbers.size(); ++i) CHECK(handlers[e].numbers[i] == i);
      CHECK(lanes[e]->idle());
    }
  }

  Acknowledgements calls[2];
  Recorder handlers[2];
  std::string wires[2];  ///< by sender
  std::vector<std::string> wanted[2];
  std::unique_ptr<Lane> lanes[2];
  std::size_t count = 0;
};

}  // namespace

TEST_CASE("a lane moves: the bytes that the former connection lost are sent again, and no others") {
  for (const std::size_t accepted : {0, 1, 23, 24, 30, 60, 70, 20'000, 40'100, 63'000, 100'000})
    for (const std::size_t delivered : {0, 1, 24, 55, 39'000, 40'101, 62'999, 100'000}) {
      if (delivered > accepted) continue;
      Ends ends(accepted);
      for (const int e : {0, 1}) ends.add_frames(e);
      ends.send_all();
      for (const int e : {0, 1}) {
        std::string& wire = ends.wires[e];
        const std::size_t arrived = std::min(delivered, wire.size());
        ends.calls[e].missing = static_cast<int>(wire.size() - arrived);
        wire.resize(arrived);
      }
      ends.receive_all();
      ends.send_all();  // drops the frames that have been acknowledged
      ends.move();
      for (const int e : {0, 1}) ends.add_frames(e);
      ends.check_arrived();
    }
}

TEST_CASE("a moved lane sends its number of bytes, also if that of the other end comes first") {
  Ends ends(SIZE_MAX);
  ends.move();
  CHECK(ends.lanes[0]->send() == 0);
  CHECK(ends.lanes[0]->idle());
  CHECK(ends.lanes[1]->receive() == 0);
  CHECK_FALSE(ends.lanes[1]->idle());
  ends.check_arrived();
}

TEST_CASE("a lane moves again before it has said what it has received, and after") {
  Ends ends(50'000);
  for (const int e : {0, 1}) ends.add_frames(e);
  ends.send_all();
  ends.lose_after(10'000);
  ends.receive_all();
  ends.move();
  CHECK(ends.lanes[0]->send() == 0);
  ends.wires[0].resize(3);  // of the 8 bytes of the number
  ends.receive_all();
  ends.move();
  ends.send_all();
  ends.receive_all();  // the numbers
  ends.send_all();
  ends.lose_after(25'000);
  ends.receive_all();
  ends.move();
  ends.check_arrived();
}

TEST_CASE("frames that were given up are not sent over the other connection, and a begun one is complete") {
  Ends ends(70);  // amid the third frame
  ends.add_frames(0);
  ends.send_all();
  for (const std::uint64_t ticket : {3, 4}) {
    CHECK(ends.lanes[0]->forget(ticket) == (ticket == 4 ? 1u : 0u));
    ends.handlers[0].sent[ticket - 1].assign(frame_sizes[ticket - 1], '!');
  }
  ends.wires[0].clear();
  ends.move();
  for (int round = 0; round < 5; ++round) {
    ends.send_all();
    ends.receive_all();
  }
  CHECK(ends.handlers[1].numbers == std::vector<std::uint32_t>{0, 1, 2, 4, 5, 6});
}

TEST_CASE("a rank that lies of what it has received") {
  const auto tells = [](std::uint64_t number) {
    Ends ends(SIZE_MAX);
    ends.add_frames(0);
    ends.send_all();  // all frames are kept
    ends.calls[0].missing = 0;
    ends.add_frames(0);
    ends.send_all();  // the first frames have been acknowledged
    ends.move();
    ends.wires[1].assign(reinterpret_cast<const char*>(&number), sizeof number);
    ends.lanes[0]->receive();
  };
  const std::size_t once = 7 * sizeof(FrameHeader) + 63'006;
  tells(2 * once);
  tells(once);
  CHECK_THROWS_WITH_AS(tells(2 * once + 1), "TCP: a rank has received more bytes than were sent", Error);
  CHECK_THROWS_WITH_AS(tells(UINT64_MAX), "TCP: a rank has received more bytes than were sent", Error);
  CHECK_THROWS_WITH_AS(tells(once - 1), "TCP: a rank lacks bytes that its kernel has acknowledged", Error);
  CHECK_THROWS_WITH_AS(tells(0), "TCP: a rank lacks bytes that its kernel has acknowledged", Error);
}
