/// @file stage.h — Stage: one part of a batch, as a state machine.  Stream: the tensors of a batch.  Cut: the chunks of
/// a stream.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/finite_check.h"
#include "ops/kernels/cpu_kernels.h"

namespace hvd::ops {

/// All ranks of the set go through the same stages in the same order.  A stage runs in steps that never block.  So one
/// thread can serve several sets, and two ranks never wait for each other in opposite orders.
class Stage {
 public:
  virtual ~Stage() = default;
  /// Does all work that needs no waiting.  True if there was any.
  virtual bool step() = 0;
  virtual bool done() const = 0;
};

/// One tensor of a fused allreduce.
struct Item {
  const unsigned char* in = nullptr;
  unsigned char* out = nullptr;
  std::size_t bytes = 0;
  std::size_t at = 0;  ///< position in the stream, a multiple of 64; Stream::add() sets it
  std::size_t element_bytes = 1;
  ReduceFn reduce = nullptr;
  Scale scale;
  WideReduce wide;  ///< the format of parts between nodes; element_bytes 0: parts have the tensor's dtype
  DType dtype = DType::f32;
  FiniteCheck* check = nullptr;       ///< looks at all sums; nullptr: no check
  const std::string* name = nullptr;  ///< of the operation, with `check`

  /// The bytes on the wire for @p length bytes of this tensor.  First rounds the length up to a multiple of 64.
  std::size_t wire_bytes(std::size_t length) const {
    length = (length + 63) / 64 * 64;
    return wide.element_bytes ? length / element_bytes * wide.element_bytes : length;
  }
  /// The dtype of parts between nodes.  Only with `check`, since all parts of narrow floats are f32.
  DType part_dtype() const { return wide.element_bytes ? DType::f32 : dtype; }
  /// Looks for NaN and infinity in the sum of local ranks' inputs, if `check` is set.
  /// @param offset, bytes  the piece of this tensor
  /// @param sum_dtype      of @p sum, which may be wider than the inputs
  void look(std::size_t offset, std::size_t bytes, const void* sum, const void* const* inputs, int n,
            DType sum_dtype) const {
    if (check) [[unlikely]]
      check->look({*name, offset / element_bytes, bytes / element_bytes, dtype, sum_dtype}, sum,
                  {inputs, static_cast<std::size_t>(n)});
  }
};

/// The tensors of a batch laid end to end, each at a multiple of 64 bytes.  So a cut at a multiple of 64 never divides
/// an element of any dtype.
struct Stream {
  std::vector<Item> items;
  std::size_t bytes = 0;  ///< the length of the stream, with the gaps between tensors

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
    while (low < high) {  // finds the first item that ends behind `begin`
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

/// How a stream is cut into chunks, and each chunk into one slice for each carrier.  Slices are multiples of 64 bytes.
struct Cut {
  /// chunk: bytes of every chunk except the last, which may be shorter.  With `begins`: bytes of the largest chunk.
  std::size_t bytes = 0, chunk = 0;
  int carriers = 1;                 ///< ranks of a node that reduce a slice
  std::vector<std::size_t> begins;  ///< [chunks + 1]; empty: chunks of equal size

  /// Makes four chunks, so that copying and adding overlap.  A chunk has at least 32 KiB, which may give fewer chunks.
  /// A chunk has at most @p largest bytes, which may give more.
  static Cut of(std::size_t bytes, std::size_t largest, int carriers) {
    std::size_t chunk = (bytes / 4 + 63) / 64 * 64;
    if (chunk < (32 << 10)) chunk = 32 << 10;
    if (chunk > largest) chunk = largest;
    return {bytes, chunk, carriers, {}};
  }
  /// For one carrier: a chunk holds one tensor, a piece of one tensor, or several tensors shorter than 32 KiB.  Most
  /// tensors can then be sent and received without a copy.
  /// @param largest     most bytes of a chunk, except for a chunk that holds one whole tensor
  /// @param most_whole  a tensor of at most that many bytes is not cut: without a copy, fewer chunks are faster
  static Cut at_tensors(const Stream& stream, std::size_t largest, std::size_t most_whole) {
    constexpr std::size_t large = 32 << 10;
    Cut cut{stream.bytes, 64, 1, {}};
    bool joins = false;  // the last chunk holds small tensors, and may take more of them
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
  /// Where slice @p s of chunk @p k begins in the stream.  With s = carriers: the end of the chunk.
  std::size_t slice(std::uint64_t k, int s) const {
    const std::size_t length = end(k) - begin(k);
    const std::size_t each =
        ((length + static_cast<std::size_t>(carriers) - 1) / static_cast<std::size_t>(carriers) + 63) / 64 * 64;
    const std::size_t at = each * static_cast<std::size_t>(s);
    return begin(k) + (at < length ? at : length);
  }
};

}  // namespace hvd::ops
