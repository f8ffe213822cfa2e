/// @file outbox.h — frames on their way to hvdrun, in order and bounded.
///
/// When hvdrun is slow, the channel refuses frames, and they wait here.  When too many wait, is_full() is true.  The
/// guard then stops reading from its rank, and the rank's writes block.
#pragma once
#include <deque>
#include <string>
#include <utility>

#include "wire/channel/channel.h"
#include "wire/messages/message.h"

namespace hvd::rank {

class Outbox {
 public:
  static constexpr std::size_t full_bytes = 256u << 10;

  void add(wire::Frame frame) {
    bytes_ += frame.body.size();
    frames_.push_back(std::move(frame));
  }
  void add(wire::Type type, std::string body) { add({static_cast<std::uint16_t>(type), std::move(body)}); }
  bool is_full() const { return bytes_ >= full_bytes || frames_.size() >= 1024; }
  bool empty() const { return frames_.empty(); }
  /// Sends frames while the channel takes them.
  void flush(wire::Connection& connection) {
    while (!frames_.empty() && connection.send(frames_.front())) {
      bytes_ -= frames_.front().body.size();
      frames_.pop_front();
    }
  }

 private:
  std::deque<wire::Frame> frames_;
  std::size_t bytes_ = 0;
};

}  // namespace hvd::rank
