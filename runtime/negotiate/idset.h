/// @file idset.h — sets of tensor ids on the wire.  A thousand neighbouring ids take a few bytes.
#pragma once
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "negotiate/command.h"

namespace hvd::negotiate {

/// Writes a set of ids, as runs or as a bitmap, whichever is shorter.  @p words: bit id % 64 of word id / 64.  The
/// words before @p start are 0. Runs: varint bytes of all runs plus 1, then for each run varint gap, varint length
/// minus 1. Bitmap: varint 0, varint index of its first byte, varint bytes, the bytes.
inline void put_ids(ByteWriter& w, std::span<const std::uint64_t> words, std::size_t start = 0) {
  ByteWriter runs;
  std::uint32_t next = 0;             // first id after the last run
  std::int64_t first = -1;            // first id of the current run; -1: there is none
  std::size_t low = ~0ull, high = 0;  // first and last word that is not 0
  auto close = [&](std::uint32_t end) {
    runs.varint(static_cast<std::uint32_t>(first) - next).varint(end - 1 - static_cast<std::uint32_t>(first));
    next = end;
    first = -1;
  };
  for (std::size_t i = start; i < words.size(); ++i) {
    const std::uint64_t word = words[i];
    const auto base = static_cast<std::uint32_t>(i * 64);
    if (word == 0) {
      if (first >= 0) close(base);
      continue;
    }
    if (low == ~0ull) low = i;
    high = i;
    if (word == ~0ull) {
      if (first < 0) first = base;
      continue;
    }
    for (std::uint32_t b = 0; b < 64;) {  // from one end of a run to the next
      const std::uint64_t rest = word >> b;
      if (first < 0) {
        if (rest == 0) break;
        b += static_cast<std::uint32_t>(std::countr_zero(rest));
        first = base + b;
      } else {
        b += static_cast<std::uint32_t>(std::countr_one(rest));
        if (b < 64) close(base + b);
      }
    }
  }
  if (first >= 0) close(static_cast<std::uint32_t>(words.size() * 64));
  if (low == ~0ull) low = high = 0;
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  std::size_t begin = low * 8, end = words.empty() ? 0 : (high + 1) * 8;
  while (begin < end && bytes[begin] == 0) ++begin;
  while (begin < end && bytes[end - 1] == 0) --end;
  if (begin == end || runs.bytes().size() <= end - begin + 3) {
    w.varint(runs.bytes().size() + 1).raw(runs.bytes());
  } else {
    w.varint(0).varint(begin).varint(end - begin).raw({bytes + begin, end - begin});
  }
}

/// Calls f(id) for each id of the set, ascending.  Throws std::runtime_error on bytes that put_ids() cannot have
/// written, and on an id that is not below @p limit.
template <class F>
void get_ids(ByteReader& r, std::uint32_t limit, F&& f) {
  if (const std::uint64_t length = r.varint(); length > 0) {
    ByteReader runs(r.take(length - 1));
    std::uint64_t next = 0;
    while (!runs.empty()) {
      next += runs.varint();
      const std::uint64_t end = next + runs.varint() + 1;
      if (end > limit || next >= end) throw std::runtime_error("negotiation: an id that does not exist");
      for (; next < end; ++next) f(static_cast<std::uint32_t>(next));
    }
    return;
  }
  const std::uint64_t begin = r.varint();
  const std::string_view bytes = r.take(r.varint());
  if (begin > limit) throw std::runtime_error("negotiation: an id that does not exist");
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (auto byte = static_cast<unsigned char>(bytes[i]); byte; byte &= static_cast<unsigned char>(byte - 1)) {
      const auto id = static_cast<std::uint32_t>((begin + i) * 8 + static_cast<unsigned>(__builtin_ctz(byte)));
      if (id >= limit) throw std::runtime_error("negotiation: an id that does not exist");
      f(id);
    }
}

}  // namespace hvd::negotiate
