/// @file peer_stream.h — a stream of scattered bytes between two ranks, a few messages at a time.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "ops/message_set.h"
#include "ops/pieces.h"

namespace hvd::ops {

/// One stream to or from one rank.  Both ends cut the stream into the same segments.  At most 4 packed messages are
/// under way, or 16 direct ones.  Direct messages need no buffer, and 16 of them fill a link with a latency of some
/// milliseconds.  Streams do not wait for each other.
class PeerStream {
 public:
  static constexpr std::size_t largest = 256 << 10;
  /// @param pieces  addresses of the bytes; the memory must stay valid until done()
  /// @param here    returns how many bytes, from the start of the stream, can be sent now.  Empty function: all of them
  PeerStream(transport::Transport& transport, int peer, bool outgoing, Pieces pieces,
             std::function<std::size_t()> here = {})
      : transport_(transport),
        peer_(peer),
        outgoing_(outgoing),
        here_(std::move(here)),
        pieces_(std::move(pieces)),
        segments_(pieces_.segments(largest)) {}
  PeerStream(const PeerStream&) = delete;
  PeerStream& operator=(const PeerStream&) = delete;

  bool step() {
    bool moved = false;
    while (!under_way_.empty() && under_way_.front()->messages.done()) {
      SegmentInFlight& p = *under_way_.front();
      if (!outgoing_ && !p.segment.direct) pieces_.write(p.segment.begin, p.segment.end, p.buffer.data());
      through_ = p.segment.end;
      under_way_.pop_front();
      moved = true;
    }
    for (; next_ < segments_.size() && has_room(segments_[next_]) && here(segments_[next_]); moved = true)
      post(segments_[next_++]);
    return moved;
  }
  /// The number of finished bytes, from the start of the stream.  Incoming: these bytes are in place.  Outgoing: these
  /// bytes are sent, and the caller may change them.
  std::size_t through() const { return through_; }
  bool done() const { return through_ == pieces_.bytes(); }

 private:
  static constexpr std::size_t most_packed = 4, most_direct = 16;  ///< messages under way
  struct SegmentInFlight {
    SegmentInFlight(transport::Transport& t, Pieces::Segment l) : segment(l), messages(t) {}
    Pieces::Segment segment;
    std::vector<unsigned char> buffer;
    MessageSet messages;
  };
  bool has_room(const Pieces::Segment& segment) const {
    return under_way_.size() < (segment.direct ? most_direct : most_packed);
  }
  bool here(const Pieces::Segment& segment) const { return !here_ || here_() >= segment.end; }
  void post(const Pieces::Segment& segment) {
    auto p = std::make_unique<SegmentInFlight>(transport_, segment);
    const std::size_t bytes = segment.end - segment.begin;
    unsigned char* at = segment.direct;
    if (!at) {
      p->buffer.resize(bytes);
      at = p->buffer.data();
      if (outgoing_) pieces_.read(segment.begin, segment.end, at);
    }
    if (outgoing_)
      p->messages.send(peer_, at, bytes);
    else
      p->messages.receive(peer_, at, bytes);
    under_way_.push_back(std::move(p));
  }

  transport::Transport& transport_;
  const int peer_;
  const bool outgoing_;
  const std::function<std::size_t()> here_;
  const Pieces pieces_;
  const std::vector<Pieces::Segment> segments_;
  std::size_t next_ = 0, through_ = 0;
  std::deque<std::unique_ptr<SegmentInFlight>> under_way_;
};

}  // namespace hvd::ops
