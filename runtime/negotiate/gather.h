/// @file gather.h — collects for a node's leader the ids that all local members have submitted, and the members'
/// records.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "memory/node.h"
#include "memory/queue.h"
#include "negotiate/command.h"

namespace hvd::negotiate {

/// Ready bits are parities: a member flips its bit at every submit.  An id is ready when all local bits differ from
/// the latch.  Gather then flips the latch too.  No member flips its bit again before the id is published, so Gather
/// misses no submit.
class Gather {
 public:
  explicit Gather(const memory::Node& node)
      : node_(node),
        latched_(node.geometry.words),
        live_(node.geometry.words),
        inbox_(static_cast<std::size_t>(node.ranks)) {}

  /// Calls on_ready(id) for each new ready id, and on_record(local rank, record) for each new record.  Returns true if
  /// there were any.
  template <class OnReady, class OnRecord>
  bool poll(OnReady&& on_ready, OnRecord&& on_record) {
    bool any = false;
    for (std::uint32_t w = 0; w < std::min(words_, memory::polled_words); ++w) any |= poll_word(w, on_ready);
    for (std::uint32_t first = memory::polled_words; first < words_; first += 64)
      for (std::uint64_t words = take_touched(first); words; words &= words - 1)
        any |= poll_word(first + static_cast<std::uint32_t>(__builtin_ctzll(words)), on_ready);
    for (int r = 0; r < node_.ranks; ++r) {
      std::string& inbox = inbox_[static_cast<std::size_t>(r)];
      if (!memory::take_records(node_, r, inbox)) continue;
      any = true;
      std::string_view left = inbox;
      Record record;
      while (next_record(left, record)) on_record(r, record);
      inbox.erase(0, inbox.size() - left.size());
    }
    return any;
  }

  /// Resets the latch of @p id.  Must be called before the command `assign` is written to the node's ring.  Until then
  /// all local bits of the id are equal.
  void assigned(std::uint32_t id) {
    const std::uint64_t bit = 1ull << (id % 64);
    latched_[id / 64] = (latched_[id / 64] & ~bit) | (node_.word(0, id / 64).load(std::memory_order_seq_cst) & bit);
    live_[id / 64] |= bit;
    words_ = std::max(words_, id / 64 + 1);
  }
  void evicted(std::uint32_t id) { live_[id / 64] &= ~(1ull << (id % 64)); }

  /// The number of commands that all local members have carried out.
  std::uint64_t executed() const {
    std::uint64_t least = ~0ull;
    for (int r = 0; r < node_.ranks; ++r)
      least = std::min(least, node_.board(r).executed.load(std::memory_order_acquire));
    return least;
  }

  /// Calls f(id, submitted) for each id that only some local ranks have submitted.  submitted: [local ranks] booleans.
  template <class F>
  void partial(F&& f) const {
    for (std::uint32_t w = 0; w < words_; ++w) {
      std::uint64_t some = 0;
      for (int r = 0; r < node_.ranks; ++r) some |= (node_.word(r, w).load() ^ latched_[w]) & live_[w];
      for (; some; some &= some - 1) {
        const int b = __builtin_ctzll(some);
        std::vector<bool> here(static_cast<std::size_t>(node_.ranks));
        for (int r = 0; r < node_.ranks; ++r)
          here[static_cast<std::size_t>(r)] = (node_.word(r, w).load() ^ latched_[w]) >> b & 1;
        f(w * 64 + static_cast<std::uint32_t>(b), here);
      }
    }
  }

 private:
  template <class OnReady>
  bool poll_word(std::uint32_t w, OnReady&& on_ready) {
    std::uint64_t fresh = live_[w];
    for (int r = 0; r < node_.ranks && fresh; ++r)
      fresh &= node_.word(r, w).load(std::memory_order_seq_cst) ^ latched_[w];
    if (!fresh) return false;
    latched_[w] ^= fresh;
    for (; fresh; fresh &= fresh - 1) on_ready(w * 64 + static_cast<std::uint32_t>(__builtin_ctzll(fresh)));
    return true;
  }
  /// Takes the touched bits of all ranks for 64 words, from word @p first on.
  std::uint64_t take_touched(std::uint32_t first) const {
    std::uint64_t words = 0;
    for (int r = 0; r < node_.ranks; ++r)
      if (auto& t = node_.touched(r, (first - memory::polled_words) / 64); t.load(std::memory_order_seq_cst) != 0)
        words |= t.exchange(0, std::memory_order_seq_cst);
    return words;
  }

  const memory::Node& node_;
  std::vector<std::uint64_t> latched_, live_;
  std::vector<std::string> inbox_;
  std::uint32_t words_ = 0;
};

}  // namespace hvd::negotiate
