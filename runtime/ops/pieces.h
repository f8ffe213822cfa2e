/// @file pieces.h — ranges of memory, seen as one stream of bytes.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace hvd::ops {

/// Pieces laid end to end; the memory belongs to the caller.  A piece with the address nullptr is a gap: its bytes of
/// the stream are neither read nor written.
class Pieces {
 public:
  void add(const void* at, std::size_t bytes) {
    if (bytes == 0) return;
    pieces_.push_back({static_cast<unsigned char*>(const_cast<void*>(at)), total_, bytes});
    total_ += bytes;
  }
  void append(const Pieces& more) {
    for (const Piece& p : more.pieces_) add(p.at, p.bytes);
  }
  std::size_t bytes() const { return total_; }

  /// Calls f(address, position in the stream, length) for each part of [begin, end) that has an address.
  template <class F>
  void each(std::size_t begin, std::size_t end, F&& f) const {
    auto i = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                              [](std::size_t at, const Piece& p) { return at < p.begin + p.bytes; });
    for (; i != pieces_.end() && i->begin < end; ++i) {
      const std::size_t from = std::max(begin, i->begin), to = std::min(end, i->begin + i->bytes);
      if (i->at) f(i->at + (from - i->begin), from, to - from);
    }
  }
  /// read() copies [begin, end) of the stream to a buffer; write() copies a buffer to [begin, end).
  void read(std::size_t begin, std::size_t end, unsigned char* to) const {
    each(begin, end,
         [&](unsigned char* at, std::size_t from, std::size_t n) { std::memcpy(to + (from - begin), at, n); });
  }
  void write(std::size_t begin, std::size_t end, const unsigned char* from) const {
    each(begin, end,
         [&](unsigned char* at, std::size_t to, std::size_t n) { std::memcpy(at, from + (to - begin), n); });
  }

  /// The part of the stream that one message carries.
  struct Segment {
    std::size_t begin = 0, end = 0;
    unsigned char* direct = nullptr;  ///< the bytes lie here, in one piece; nullptr: the message must be packed
  };
  /// Cuts the stream into segments of at most @p largest bytes.  The cut depends on the lengths of the pieces only, so
  /// sender and receiver cut alike.  Pieces of 32 KiB or more are sent without a copy if they have an address.  Shorter
  /// neighbours are packed into one segment.
  std::vector<Segment> segments(std::size_t largest) const {
    std::vector<Segment> all;
    bool packed = false;  // the last one
    for (const Piece& p : pieces_) {
      if (p.bytes >= alone_from) {
        for (std::size_t at = 0; at < p.bytes; at += largest)
          all.push_back({p.begin + at, p.begin + std::min(at + largest, p.bytes), p.at ? p.at + at : nullptr});
        packed = false;
      } else if (packed && all.back().end - all.back().begin + p.bytes <= largest) {
        all.back().end += p.bytes;
      } else {
        all.push_back({p.begin, p.begin + p.bytes, nullptr});
        packed = true;
      }
    }
    return all;
  }

 private:
  static constexpr std::size_t alone_from = 32 << 10;
  struct Piece {
    unsigned char* at;
    std::size_t begin, bytes;
  };
  std::vector<Piece> pieces_;
  std::size_t total_ = 0;
};

}  // namespace hvd::ops
