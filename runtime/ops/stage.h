/// @file stage.h — one part of a batch, as a small state machine.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/kernels/cpu_kernels.h"

namespace hvd::ops {

/// Runs in pieces so that one thread can serve several sets and two ranks never wait for each other in opposite
/// orders.  All ranks of the set go through the same stages in the same order.
class Stage {
 public:
  virtual ~Stage() = default;
  /// Does what can be done without waiting.  True when anything moved.
  virtual bool step() = 0;
  virtual bool done() const = 0;
};

/// One tensor of a fused allreduce.
struct Item {
  const unsigned char* in = nullptr;
  unsigned char* out = nullptr;
  std::size_t bytes = 0;
  std::size_t at = 0;  ///< where it begins in the stream of the batch, a multiple of 64
  std::size_t element_bytes = 1;
  ReduceFn reduce = nullptr;
  Scale scale;
  WideReduce wide;  ///< how nodes' parts travel; element_bytes 0: in the dtype

  /// What @p length bytes of it take on the wire.
  std::size_t wire_bytes(std::size_t length) const {
    length = (length + 63) / 64 * 64;
    return wide.element_bytes ? length / element_bytes * wide.element_bytes : length;
  }
};

/// The tensors of a batch laid end to end, each at a multiple of 64 bytes: any cut at a multiple of 64 falls between
/// elements of any dtype.
struct Stream {
  std::vector<Item> items;
  std::size_t bytes = 0;  ///< whole length, with the gaps

  void clear() { items.clear(), bytes = 0; }
  void add(Item item) {
    if (item.bytes == 0) return;
    item.at = bytes;
    bytes += (item.bytes + 63) / 64 * 64;
    items.push_back(item);
  }

  /// Calls f(item, offset in the item, position in the stream, length) for each piece of [begin, end).
  template <class F>
  void pieces(std::size_t begin, std::size_t end, F&& f) const {
    std::size_t low = 0, high = items.size();
    while (low < high) {  // first item that ends behind begin
      const std::size_t middle = (low + high) / 2;
      if (items[middle].at + items[middle].bytes > begin)
        high = middle;
      else
        low = middle + 1;
    }
    for (std::size_t i = low; i < items.size() && items[i].at < end; ++i) {
      const Item& item = items[i];
      const std::size_t from = begin > item.at ? begin - item.at : 0;
      const std::size_t to = end - item.at < item.bytes ? end - item.at : item.bytes;
      f(item, from, item.at + from, to - from);
    }
  }
};

/// How a stream is cut: chunks, each divided among the carriers in whole lines.
struct Cut {
  std::size_t bytes = 0, chunk = 0;  ///< chunk: of each chunk but the last; with `begins`, of the largest
  int carriers = 1;
  std::vector<std::size_t> begins;  ///< [chunks + 1]; empty: chunks of equal size

  /// At least four chunks where that leaves them 32 KiB, so that copying and adding overlap.
  static Cut of(std::size_t bytes, std::size_t largest, int carriers) {
    std::size_t chunk = (bytes / 4 + 63) / 64 * 64;
    if (chunk < (32 << 10)) chunk = 32 << 10;
    if (chunk > largest) chunk = largest;
    return {bytes, chunk, carriers, {}};
  }
  /// For one carrier: a chunk holds one tensor, a piece of one, or several small tensors.  Most tensors can then be
  /// sent and received without a copy.  Fewer chunks are better where nothing is copied.
  /// @param most_whole  bytes up to which a tensor is not cut
  static Cut at_tensors(const Stream& stream, std::size_t largest, std::size_t most_whole) {
    constexpr std::size_t large = 32 << 10;
    Cut cut{stream.bytes, 64, 1, {}};
    bool joins = false;  // the last chunk holds small tensors
    for (const Item& item : stream.items) {
      const std::size_t length = (item.bytes + 63) / 64 * 64;
      if (length < large) {
        if (!joins || item.at + length - cut.begins.back() > largest) cut.begins.push_back(item.at);
        joins = true;
        continue;
      }
      const std::size_t pieces = length <= most_whole ? 1 : (length + largest - 1) / largest;
      const std::size_t each = ((length + pieces - 1) / pieces + 63) / 64 * 64;
      for (std::size_t at = 0; at < length; at += each) cut.begins.push_back(item.at + at);
      joins = false;
    }
    cut.begins.push_back(stream.bytes);
    for (std::uint64_t k = 0; k < cut.chunks(); ++k) cut.chunk = std::max(cut.chunk, cut.end(k) - cut.begin(k));
    return cut;
  }
  std::uint64_t chunks() const { return begins.empty() ? (bytes + chunk - 1) / chunk : begins.size() - 1; }
  std::size_t begin(std::uint64_t k) const { return begins.empty() ? k * chunk : begins[k]; }
  std::size_t end(std::uint64_t k) const {
    if (!begins.empty()) return begins[k + 1];
    return (k + 1) * chunk < bytes ? (k + 1) * chunk : bytes;
  }
  /// Where slice s of chunk k begins; slice `carriers` begins where the chunk ends.
  std::size_t slice(std::uint64_t k, int s) const {
    const std::size_t length = end(k) - begin(k);
    const std::size_t each =
        ((length + static_cast<std::size_t>(carriers) - 1) / static_cast<std::size_t>(carriers) + 63) / 64 * 64;
    const std::size_t at = each * static_cast<std::size_t>(s);
    return begin(k) + (at < length ? at : length);
  }
};

}  // namespace hvd::ops
