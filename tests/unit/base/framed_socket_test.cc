/// Messages of known length over a stream socket.
#include "base/network/framed_socket.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <vector>

#include "base/file.h"

using namespace hvd;
using namespace std::chrono_literals;

namespace {

struct Pair {
  Fd here, there;
  Pair() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    here = Fd(fds[0]);
    there = Fd(fds[1]);
  }
  void send(const std::string& bytes) const {
    REQUIRE(::send(there.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }
};

Deadline soon() { return std::chrono::steady_clock::now() + 20ms; }
Deadline late() { return std::chrono::steady_clock::now() + 60s; }

}  // namespace

TEST_CASE("framed socket: the header is little endian") {
  CHECK(framed(0x0102, "ab") == std::string("\2\0\0\0\2\1\0\0ab", 10));
  CHECK(SocketFrameHeader::at("\xff\xff\xff\xff\xfe\xff\xff\xff").body_bytes == UINT32_MAX);
  CHECK(SocketFrameHeader::at("\xff\xff\xff\xff\xfe\xff\xff\xff").tag == UINT32_MAX - 1);
}

TEST_CASE("framed input: frames come whole and in order, however their bytes come") {
  const Pair pair;
  FrameInput in(100);
  CHECK(in.read(pair.here.get()) == FrameInput::Read::nothing);
  const std::string bytes = "key" + framed(1, "one") + framed(2, "") + framed(3, "three");
  std::string key;
  std::vector<TaggedFrame> frames;
  for (const char byte : bytes) {
    pair.send(std::string(1, byte));
    CHECK(in.read(pair.here.get()) == FrameInput::Read::some);
    if (key.empty()) key = in.take_bytes(3).value_or("");
    if (key.empty()) continue;
    while (auto frame = in.take()) frames.push_back(std::move(*frame));
  }
  CHECK(key == "key");
  REQUIRE(frames.size() == 3);
  CHECK(frames[1].tag == 2);
  CHECK(frames[2].body == "three");
  CHECK(::shutdown(pair.there.get(), SHUT_WR) == 0);
  CHECK(in.read(pair.here.get()) == FrameInput::Read::ended);
}

TEST_CASE("framed input: a frame beyond the limits is malformed, after the frames before it were taken") {
  for (const std::string& bad : {framed(1, "123456"), framed(8, "")}) {
    const Pair pair;
    FrameInput in(5, 7);
    pair.send(framed(7, "12345") + bad);
    in.read(pair.here.get());
    CHECK_FALSE(in.is_malformed());
    CHECK(in.take());
    CHECK(in.is_malformed());
    CHECK_FALSE(in.take());
    in.drop();
    CHECK_FALSE(in.is_malformed());
  }
}

TEST_CASE("framed output: what the socket does not take waits; a gone reader drops it") {
  Pair pair;
  FrameOutput out;
  const auto body = std::make_shared<const std::string>(100'000, 'x');
  for (int i = 0; i < 50; ++i) out.add(5, body);
  FrameInput in(body->size());
  int frames = 0;
  REQUIRE(out.flush(pair.here.get()) == FrameOutput::Flush::blocked);
  while (frames < 50) {
    in.read(pair.there.get());
    while (const auto frame = in.take()) frames += frame->tag == 5 && frame->body == *body ? 1 : 0;
    out.flush(pair.here.get());
  }
  CHECK(out.is_empty());
  out.add(5, body);
  pair.there.reset();
  CHECK(out.flush(pair.here.get()) == FrameOutput::Flush::broken);
  CHECK(out.is_empty());
}

TEST_CASE("framed socket: waiting calls end at their deadline, and when the other end is gone") {
  Pair pair;
  CHECK_FALSE(receive_frame(pair.here.get(), 10, soon()).ended);
  CHECK_FALSE(send_frame(pair.here.get(), 1, std::string(8 << 20, 'x'), soon()));
  Pair other;
  std::thread speaker([&] {
    CHECK(send_frame(other.there.get(), 9, "hello", late()));
    CHECK(send_frame(other.there.get(), 9, "too long a body", late()));
  });
  const ReceivedFrame one = receive_frame(other.here.get(), 10, late());
  REQUIRE(one.frame);
  CHECK(one.frame->tag == 9);
  CHECK(one.frame->body == "hello");
  CHECK(receive_frame(other.here.get(), 10, late()).ended);
  speaker.join();
  other.there.reset();
  const Pair cut;
  cut.send(framed(1, "body").substr(0, 9));
  CHECK(::shutdown(cut.there.get(), SHUT_WR) == 0);
  CHECK(receive_frame(cut.here.get(), 10, late()).ended);
}
