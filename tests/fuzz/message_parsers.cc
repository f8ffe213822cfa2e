/// Parsers of the messages between ranks of different hosts: frames, the lanes that carry them, and both over real
/// sockets.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "parsers.h"
#include "transport/tcp/carry/messages.h"

namespace hvd::fuzz {
namespace {

using namespace hvd::transport;
using namespace hvd::transport::tcp;

/// Lengths on both sides of each limit.
constexpr std::uint32_t lengths[] = {
    0, 1, 4, 1000, eager_bytes, eager_bytes + 1, 256 << 10, (256 << 10) + 1, 300'000, 600'000, 1u << 30, ~0u};
constexpr std::size_t lengths_of_receives = 10;

/// Takes decisions from bytes; zeros when no bytes are left.
class Decisions {
 public:
  explicit Decisions(const std::string& bytes) : bytes_(bytes) {}
  bool over() const { return at_ >= bytes_.size(); }
  unsigned next() { return over() ? 0 : static_cast<unsigned char>(bytes_[at_++]); }
  std::string text(std::size_t bytes) {
    const std::string some = bytes_.substr(std::min(at_, bytes_.size()), bytes);
    at_ += some.size();
    return some;
  }
  /// Takes five bytes.
  FrameHeader header() {
    FrameHeader h;
    const unsigned kind = next(), number = next(), length = next(), at = next(), stream = next();
    h.kind = static_cast<FrameKind>(kind % 8);
    h.tag = static_cast<std::uint8_t>(kind / 8 % 8 == 7 ? kind : kind / 8 % 8 == 0 ? 5 : kind / 8 % 8);
    h.number = number < 250 ? number : 0u - number;
    h.bytes = length < 128 ? lengths[length % std::size(lengths)] : length;
    h.at = at % 4 == 0 ? std::uint64_t{at / 4} << 18 : at % 4 == 1 ? 0 : std::uint64_t{at} << (at % 60);
    h.stream = stream < 200 ? stream % 3 * 3 : stream * 1000;
    return h;
  }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

/// The receives of one rank. Frees each buffer as soon as the transport permits: AddressSanitizer then reports a later
/// write.
class ReceiverOfFuzz final : public ReceivesUser {
 public:
  ReceiverOfFuzz(int bulk_lanes, bool repeats) : receives_(*this, streams_, bulk_lanes), repeats_(repeats) {}

  void run(Decisions& d) {
    while (!d.over()) step(d);
    hold(receives_.channels() <= 2 * 6 * 8);
    hold(receives_.kept_bytes() <= receives_.channels() * (most_untaken_bytes + counted_bytes(most_control_bytes)));
  }

  void answer(FrameKind, const Channel&, std::uint32_t, std::uint64_t) override {}
  void received(Ticket ticket) override { hold(memory_.erase(ticket) == 1); }
  bool parts_repeat(int) override { return repeats_; }
  void drop_arriving(int peer, const std::function<bool(const FrameHeader&)>& drops) override {
    for (auto& [name, lane] : lanes_)
      if (name.peer == peer && lane.target && drops(lane.header)) lane.target = nullptr;
  }

 private:
  struct LaneOfFuzz {
    FrameHeader header;
    unsigned char* target = nullptr;
  };
  struct ReceiveOfFuzz {
    Channel channel;
    std::uint32_t number = 0;
    std::vector<unsigned char> bytes;
  };
  void step(Decisions& d) {
    const unsigned what = d.next();
    const Channel channel{static_cast<int>(what / 8 % 2), static_cast<int>(what / 16 % 3) * 3,
                          what / 64 % 2 ? Tag::data : Tag::second};
    switch (what % 8) {
      case 0:
      case 1:
      case 2: {
        const LaneName name{channel.peer, static_cast<int>(what / 16 % 3)};
        if (lanes_.count(name) > 0) return arrive(name);
        FrameHeader h = d.header();
        if (h.kind != FrameKind::piece) h.kind = FrameKind::message;
        if (h.kind == FrameKind::message && h.bytes > (1u << 20) && h.bytes <= most_control_bytes) h.bytes = 1u << 20;
        lanes_[name] = {h, receives_.place(name, h)};
        return;
      }
      case 3: {
        if (!lanes_.empty()) arrive(lanes_.begin()->first);
        return;
      }
      case 4: {
        const Ticket ticket = ++last_;
        const std::size_t bytes = lengths[d.next() % lengths_of_receives];
        ReceiveOfFuzz& r = memory_[ticket];
        r.channel = channel;
        r.bytes.resize(bytes);
        const auto number = receives_.post(channel, r.bytes.data(), bytes, ticket);
        if (number)
          r.number = *number;
        else
          memory_.erase(ticket);
        return;
      }
      case 5:
        if (const auto it = memory_.lower_bound(d.next()); it != memory_.end()) {
          receives_.abandon(it->second.channel, it->second.number);
          memory_.erase(it);
        }
        return;
      case 6:
        receives_.poll(channel.stream, static_cast<Tag>(1 + d.next() % 6));
        return;
      case 7:
        if (channel.stream == 0) return;
        if (d.next() % 2) {
          for (const int never : streams_.open(channel.stream, {0, 1})) forget(never);
        } else {
          streams_.close(channel.stream);
          forget(channel.stream);
        }
    }
  }
  void arrive(LaneName name) {
    LaneOfFuzz& lane = lanes_.at(name);
    if (lane.target && lane.header.bytes > 0) {  // the lane writes to the caller's memory: ASan checks it, too
      lane.target[0] = 'a';
      lane.target[lane.header.bytes - 1] = 'z';
    }
    const FrameHeader h = lane.header;
    lanes_.erase(name);
    receives_.arrived(name, h);
  }
  void forget(int stream) {
    receives_.forget(stream);
    std::erase_if(memory_, [&](const auto& r) { return r.second.channel.stream == stream; });
  }

  StreamTable streams_;
  Receives receives_;
  const bool repeats_;
  std::map<LaneName, LaneOfFuzz> lanes_;
  std::map<Ticket, ReceiveOfFuzz> memory_;
  Ticket last_ = 0;
};

void message_frames(const std::string& s) {
  Decisions d(s);
  const unsigned first = d.next();
  ReceiverOfFuzz(first % 2 ? 1 : 3, first / 2 % 2).run(d);
}

std::vector<std::string> message_frame_samples() {
  // 8 and more: a frame of peer 1 begins on lane 0; 24: on lane 1.  3: the first one ends.  108: a receive of stream 0,
  // 76 of stream 3.  14: a poll.  31: stream 3 comes or goes.  A header: kind and tag, number, length, at, stream.
  const auto op = [](std::initializer_list<int> bytes) { return std::string(bytes.begin(), bytes.end()); };
  const std::string small = op({8, 41, 0, 2, 1, 0, 3}), its_receive = op({108, 2});
  const std::string large = op({24, 43, 1, 8, 1, 0, 3}), its_receive_large = op({108, 8});
  const std::string control = op({8, 25, 0, 3, 1, 0, 3, 14, 2});
  const std::string stream = op({31, 1, 76, 2, 8, 41, 0, 2, 1, 1, 3, 31, 0});
  return {'\1' + small + its_receive + its_receive_large + large + control + stream,
          '\1' + its_receive + small + its_receive_large + op({24, 43, 1, 8, 1, 0, 5, 1, 3}) + control,
          '\3' + its_receive + its_receive_large + op({24, 43, 1, 6, 1, 0, 40, 43, 1, 6, 1, 0, 3, 3}) + stream};
}

// ---- one lane

/// A connection in memory: it delivers bytes in pieces, and accepts bytes in pieces.
class StreamOfFuzz final : public ByteStream {
 public:
  StreamOfFuzz(std::string in, std::string pieces) : in_(std::move(in)), pieces_(std::move(pieces)) {}
  ssize_t send(const iovec* parts, int count) override {
    return move(parts, count, [&](void* from, std::size_t bytes, std::size_t) {
      out.append(static_cast<const char*>(from), bytes);
      return bytes;
    });
  }
  ssize_t receive(const iovec* parts, int count, bool) override {
    if (at_ == in_.size()) return 0;
    return move(parts, count, [&](void* to, std::size_t bytes, std::size_t) {
      const std::size_t part = std::min(bytes, in_.size() - at_);
      std::memcpy(to, in_.data() + at_, part);
      at_ += part;
      return part;
    });
  }
  std::uint64_t written() const override { return out.size(); }
  std::string out;

 private:
  template <class F>
  ssize_t move(const iovec* parts, int count, F&& f) {
    std::size_t most =
        pieces_.empty() ? ~std::size_t{0} : static_cast<unsigned char>(pieces_[turn_++ % pieces_.size()]);
    if (most == 0) most = 1 << 16;
    std::size_t moved = 0;
    for (int i = 0; i < count && moved < most; ++i) {
      const std::size_t wanted = std::min(parts[i].iov_len, most - moved), done = f(parts[i].iov_base, wanted, moved);
      moved += done;
      if (done < wanted) break;
    }
    return static_cast<ssize_t>(moved);
  }
  const std::string in_, pieces_;
  std::size_t at_ = 0, turn_ = 0;
};

/// Records the frames that arrive. Drops some frames, and refuses others.
class HandlerOfFuzz final : public FrameHandler {
 public:
  unsigned char* place(Lane&, const FrameHeader& h) override {
    if (h.bytes > 1 << 16) throw Error(Code::internal, "fuzz", "too long");
    body_.assign(h.bytes, 0);
    drops_ = h.number % 2;
    return drops_ ? nullptr : reinterpret_cast<unsigned char*>(body_.data());
  }
  void arrived(Lane&, const FrameHeader& h) override {
    log += std::string(reinterpret_cast<const char*>(&h), sizeof h) + (drops_ ? "-" : body_);
  }
  void left(Lane&, const OutFrame&) override { ++gone; }
  std::string log;
  int gone = 0;

 private:
  std::string body_;
  bool drops_ = false;
};

std::string read_lane(const std::string& bytes, const std::string& pieces) {
  SocketCalls calls;
  HandlerOfFuzz handler;
  Lane lane(calls, handler, Fd(), std::make_unique<StreamOfFuzz>(bytes, pieces), 1, 0);
  lane.is_local = true;
  try {
    while (lane.receive() == 0) {}
  } catch (const Error& e) { handler.log += e.what(); }
  return handler.log;
}

/// Input: sizes of pieces, a zero byte, and the bytes of a lane. The pieces do not change the meaning of the bytes. One
/// lane sends in pieces, and another one must read the same frames.
void lane(const std::string& s) {
  const std::size_t end = std::min(s.find('\0'), s.size());
  const std::string pieces = s.substr(0, end), bytes = s.substr(std::min(end + 1, s.size()));
  const std::string whole = read_lane(bytes, "");
  hold(read_lane(bytes, pieces) == whole);

  SocketCalls calls;
  HandlerOfFuzz handler;
  auto stream = std::make_unique<StreamOfFuzz>("", pieces);
  StreamOfFuzz& out = *stream;
  Lane sender(calls, handler, Fd(), std::move(stream), 1, 0);
  std::deque<std::string> bodies;
  std::string wanted;
  Decisions d(bytes);
  std::uint64_t ticket = 0;
  while (!d.over()) {
    const unsigned what = d.next();
    if (what % 4 == 0) sender.send();
    if (what % 4 == 1 && ticket > 0) {
      sender.forget(ticket);
      bodies.back().assign(bodies.back().size(), '?');  // the caller has its memory back
    }
    if (what % 4 < 2) continue;
    OutFrame frame;
    frame.header.number = static_cast<std::uint32_t>(what);
    bodies.push_back(d.text(what));
    frame.header.bytes = static_cast<std::uint32_t>(bodies.back().size());
    frame.data = bodies.back().data();
    frame.ticket = ++ticket;
    sender.add(std::move(frame));
  }
  for (int i = 0; i < 1'000'000 && !sender.idle(); ++i) hold(sender.send() == 0);
  hold(sender.idle());
  const std::string read = read_lane(out.out, pieces);
  const std::string taken_back(8, '?');
  hold(read.find(taken_back) == std::string::npos || s.find(taken_back) != std::string::npos);
  hold(read == read_lane(out.out, ""));
}

std::vector<std::string> lane_samples() {
  std::string frames;
  for (const std::uint32_t bytes : {0u, 5u, 40'000u, 3u}) {
    FrameHeader h;
    h.number = bytes;
    h.bytes = bytes;
    frames += std::string(reinterpret_cast<const char*>(&h), sizeof h) + std::string(bytes, 'b');
  }
  using namespace std::string_literals;
  return {"\1\0"s + frames, "\x10\xff\7\0"s + frames, "\3\x40\0\6abcdefg\0\1\7abcdefghijk\1\0"s};
}

// ---- the whole transport

/// Rank 0 of two on one host. The input is the bytes on the lanes of rank 1.
class MessagesOfFuzz {
 public:
  MessagesOfFuzz() : messages_(plan(), calls_) {
    for (std::uint32_t n = 0; n < 2; ++n) {
      const CallAddress to = call_address(path_);
      lanes_.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      hold(::connect(lanes_[n].get(), reinterpret_cast<const sockaddr*>(&to.at), to.bytes) == 0);
      const Caller caller{1, 0, n, 0, 7};
      hold(::send(lanes_[n].get(), &caller, sizeof caller, MSG_NOSIGNAL) == sizeof caller);
    }
    for (int i = 0; i < 10'000 && messages_.connections() < 2; ++i) progress();
    hold(messages_.connections() == 2);
  }
  ~MessagesOfFuzz() {
    for (const auto& [ticket, memory] : memory_) messages_.abandon(ticket);
  }

  void run(Decisions& d) {
    while (!d.over() && messages_.lost().empty()) step(d);
    progress();
    for (const LostPeer& lost : messages_.lost()) hold(lost.rank == 1 && lost.text.starts_with("rank 1"));
  }

 private:
  void step(Decisions& d) {
    const unsigned what = d.next();
    const Channel channel{1, static_cast<int>(what / 8 % 2) * 3, what / 16 % 2 ? Tag::data : Tag::second};
    switch (what % 8) {
      case 0: {
        const FrameHeader h = d.header();
        return say(what / 8 % 2, {reinterpret_cast<const char*>(&h), sizeof h});
      }
      case 1:
        return say(what / 8 % 2, std::string(lengths[d.next() % 5], 'x'));
      case 2:
        return say(what / 8 % 2, d.text(d.next()));
      case 3: {
        auto memory = std::make_unique<std::string>(lengths[d.next() % lengths_of_receives], 'm');
        const Ticket ticket = messages_.receive(channel, memory->data(), memory->size());
        return keep(ticket, std::move(memory));
      }
      case 4: {
        auto memory = std::make_unique<std::string>(lengths[d.next() % 6], 'm');
        const Channel to{1, channel.stream, what / 32 % 2 ? Tag::up : channel.tag};
        const Ticket ticket = messages_.send(to, memory->data(), memory->size());
        return keep(ticket, std::move(memory));
      }
      case 5:
        if (const auto it = memory_.lower_bound(d.next()); it != memory_.end()) {
          if (what / 8 % 2) messages_.abandon(it->first);
          if (what / 8 % 2 || messages_.test(it->first)) memory_.erase(it);
        }
        return;
      case 6:
        (void)messages_.poll(channel.stream, static_cast<Tag>(1 + d.next() % 6));
        return;
      case 7:
        if (d.next() % 2) return open();
        for (auto it = memory_.begin(); it != memory_.end();) {
          messages_.abandon(it->first);
          it = memory_.erase(it);
        }
        messages_.forget(3);
    }
  }
  void open() {
    if (!std::exchange(opened_, true)) messages_.open(3, {0, 1});
  }
  void keep(Ticket ticket, std::unique_ptr<std::string> memory) {
    if (ticket != 0) memory_[ticket] = std::move(memory);
  }
  void say(std::size_t lane, const std::string& bytes) {
    (void)!::send(lanes_[lane].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    progress();
  }
  void progress() {
    messages_.nap(1000);
    messages_.progress();
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
  std::vector<Fd> lanes_;
  std::map<Ticket, std::unique_ptr<std::string>> memory_;
  bool opened_ = false;
  Messages messages_;
};

void messages(const std::string& s) {
  Decisions d(s);
  MessagesOfFuzz rank;
  rank.run(d);
}

std::vector<std::string> messages_samples() {
  using namespace std::string_literals;
  // A receive of 300 000 bytes, its part with some bytes on lane 1, and the same on lane 0.
  const std::string part = "\3\0\x08\1\0"s;
  return {"\x13\x08\x08"s + "\x2b\0\x08\1\0"s + "\x09\4\x09\4\0\x2b\0\x08\1\0\1\4\1\4\1\4"s,
          "\0\x29\0\2\1\0\1\2\6\4\x24\2\x04\5\0\2\0\0\0\0"s, part + "\7\1\x0b\2\7\0\0\1\0\2\1\3\1\2"s};
}

}  // namespace

std::vector<Parser> message_parsers() {
  return {{"message-frames", message_frames, message_frame_samples},
          {"lane", lane, lane_samples},
          {"messages", messages, messages_samples}};
}

}  // namespace hvd::fuzz
