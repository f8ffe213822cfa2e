/// @file mail.h — streams of scattered bytes between pairs of ranks, a few messages at a time.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "ops/messages.h"
#include "ops/pieces.h"

namespace hvd::ops {

/// One stream to or from one rank.  Both ends cut it alike; at most `window` messages of it are under way, so that
/// what has to be packed needs little memory.  Pairs do not wait for each other.
class Mail {
 public:
  static constexpr std::size_t largest = 256 << 10;
  Mail(transport::Transport& transport, int peer, bool outgoing, Pieces pieces)
      : transport_(transport),
        peer_(peer),
        outgoing_(outgoing),
        pieces_(std::move(pieces)),
        letters_(pieces_.letters(largest)) {}
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;

  bool step() {
    bool moved = false;
    while (!under_way_.empty() && under_way_.front()->messages.done()) {
      Parcel& p = *under_way_.front();
      if (!outgoing_ && !p.letter.direct) pieces_.write(p.letter.begin, p.letter.end, p.buffer.data());
      through_ = p.letter.end;
      under_way_.pop_front();
      moved = true;
    }
    for (; next_ < letters_.size() && under_way_.size() < window; moved = true) post(letters_[next_++]);
    return moved;
  }
  /// So many bytes from the front are where they belong (incoming), or need no longer stay (outgoing).
  std::size_t through() const { return through_; }
  bool done() const { return through_ == pieces_.bytes(); }

 private:
  static constexpr std::size_t window = 4;
  struct Parcel {
    Parcel(transport::Transport& t, Pieces::Letter l) : letter(l), messages(t) {}
    Pieces::Letter letter;
    std::vector<unsigned char> buffer;
    Messages messages;
  };
  void post(const Pieces::Letter& letter) {
    auto p = std::make_unique<Parcel>(transport_, letter);
    const std::size_t bytes = letter.end - letter.begin;
    unsigned char* at = letter.direct;
    if (!at) {
      p->buffer.resize(bytes);
      at = p->buffer.data();
      if (outgoing_) pieces_.read(letter.begin, letter.end, at);
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
  const Pieces pieces_;
  const std::vector<Pieces::Letter> letters_;
  std::size_t next_ = 0, through_ = 0;
  std::deque<std::unique_ptr<Parcel>> under_way_;
};

}  // namespace hvd::ops
