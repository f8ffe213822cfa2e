/// @file node.h — the layout of the memory that the ranks of one node share, for one process set.
///
/// Every word has one writer unless its comment says otherwise.  Each rank's words have their own blocks of line_bytes.
/// All memory starts as zero.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "memory/doorbell.h"

namespace hvd::memory {

/// A rank's progress with the chunks that stream through the rings.  The counts begin at init and are never reset.
struct alignas(line_bytes) Progress {
  std::atomic<std::uint64_t> in;       ///< chunks that the rank has copied into its ring
  std::atomic<std::uint64_t> used;     ///< chunks that the rank no longer needs in any rank's ring
  std::atomic<std::uint64_t> reduced;  ///< chunks whose slice the rank has finished in the result ring
  std::atomic<std::uint64_t> out;      ///< chunks that the rank has copied out of the result ring
  std::atomic<std::uint64_t> direct;   ///< batches of registered tensors whose slice the rank has reduced
};

struct alignas(line_bytes) Presence {
  std::atomic<std::uint64_t> read;      ///< bytes that the rank has read from the command ring
  std::atomic<std::uint32_t> departed;  ///< 1 after an orderly shutdown
  std::atomic<std::uint64_t> ping;      ///< to measure the round trip of a flag
  std::atomic<std::uint32_t> reach;     ///< 1: it has mapped all arenas of the node; set before its first ready bit
};

/// The place of a rank's tensor in its arena (arena.h), for one id and parity of the round.  The value is offset + 1.
/// 0: the tensor is in private memory.  Like an eager slot, the place is written before the ready bit, and read after
/// the batch was published.
struct TensorAddress {
  std::atomic<std::uint64_t> in, out;
};

inline constexpr std::size_t agreement_words = 4096;  ///< a power of two

/// The hashes of a rank's last results.  By these the node's leader finds a result that differs
/// (core/set/result_agreement.h).
struct alignas(line_bytes) AgreementWords {
  std::atomic<std::uint64_t> count;                  ///< results hashed since init; written after the hash
  std::atomic<std::uint64_t> hash[agreement_words];  ///< the hash of result n is in word n % agreement_words
  /// Used for local rank 0 only: the time at which a rank of the node last found NaN or infinity in a sum.
  std::atomic<std::int64_t> not_finite_ns;
};

/// A rank's words that the node's leader polls during negotiation.  While few ids are in use they are on one line.
struct ReadyBoard {
  std::atomic<std::uint64_t> executed;  ///< commands that the rank has carried out
  std::atomic<std::uint64_t> posted;    ///< bytes that the rank has written to its record queue since init
  /// [words] ready bits by id: a bit flips once per round.  Then [touched_words()] touched bits: one bit for each word
  /// from polled_words on.  After the rank has flipped a ready bit of the word, it sets the touched bit.  The leader
  /// clears the touched bit.
  std::atomic<std::uint64_t> board[1];
};

/// The number of words of a board that the leader polls.  The touched bits tell the leader of flips in later words.
inline constexpr std::uint32_t polled_words = 32;
/// Only tensors with ids below this number can be in registered memory.
inline constexpr std::uint32_t most_addresses = 2048;

inline constexpr int most_ranks = 512;  ///< of a node: a reduction keeps an address per rank on the stack

/// The sizes of the parts.  Must be equal on all ranks of a node.
struct Geometry {
  int ranks = 1;
  std::uint32_t words = 32;               ///< of ready bits; 64 ids each
  std::size_t chunk_bytes = 512 << 10;    ///< one buffer of a ring; a ring has two
  std::size_t eager_bytes = 4 << 20;      ///< a rank's slots for small tensors, of both parities
  std::size_t record_bytes = 64 << 10;    ///< a rank's record queue to the node's leader
  std::size_t command_bytes = 256 << 10;  ///< the ring in which the leader publishes commands
  bool agreement = false;                 ///< ranks hash their results
};

/// One rank's view of the shared memory.
/// Size: twelve of its members are offsets, one for each part of the shared memory.
class Node {
 public:
  /// Throws Error{usage} for more ranks than most_ranks.
  Node(Geometry g, int me) : geometry(g), me(me), ranks(g.ranks) {
    if (ranks > most_ranks)
      throw Error(Code::usage, std::to_string(ranks) + " ranks on one host",
                  "a host can have " + std::to_string(most_ranks) + " ranks of a job at most", "give it fewer slots");
    auto take = [this](std::size_t bytes) {
      const std::size_t at = total_;
      total_ += (bytes + line_bytes - 1) / line_bytes * line_bytes;
      return at;
    };
    public_stride_ =
        (sizeof(ReadyBoard) + 8 * (g.words + touched_words() - 1) + line_bytes - 1) / line_bytes * line_bytes;
    const auto n = static_cast<std::size_t>(g.ranks);
    doorbells_ = take(n * sizeof(Doorbell));
    progress_ = take(n * sizeof(Progress));
    presence_ = take(n * sizeof(Presence));
    public_ = take(n * public_stride_);
    taken_ = take(n * line_bytes);
    commands_ = take(g.command_bytes);
    records_ = take(n * g.record_bytes);
    addresses_ = take(n * addresses_bytes());
    agreement_ = take(g.agreement ? n * sizeof(AgreementWords) : 0);
    total_ = (total_ + 4095) / 4096 * 4096;
    results_ = take(2 * g.chunk_bytes);
    rings_ = take(n * 2 * g.chunk_bytes);
    eager_ = take(n * g.eager_bytes);
    total_ = (total_ + 4095) / 4096 * 4096;
  }
  std::size_t total_bytes() const { return total_; }
  void attach(std::shared_ptr<void> memory) {
    memory_ = std::move(memory);
    base_ = static_cast<unsigned char*>(memory_.get());
    doorbell_of_.clear();
    for (int r = 0; r < ranks; ++r) doorbell_of_.push_back(at<Doorbell>(doorbells_) + r);
  }

  /// The doorbell of local rank @p r.  A rank has one doorbell for all its process sets: that of the world's node.
  Doorbell& doorbell(int r) const { return *doorbell_of_[static_cast<std::size_t>(r)]; }
  /// Makes this process set's memory use the doorbells of @p world.  The set's local member l is local rank @p
  /// locals[l] there.
  void use_doorbells_of(const Node& world, const std::vector<int>& locals) {
    for (std::size_t l = 0; l < locals.size(); ++l) doorbell_of_[l] = &world.doorbell(locals[l]);
  }
  Progress& progress(int r) const { return at<Progress>(progress_)[r]; }
  Presence& presence(int r) const { return at<Presence>(presence_)[r]; }
  ReadyBoard& board(int r) const {
    return *reinterpret_cast<ReadyBoard*>(base_ + public_ + public_stride_ * static_cast<std::size_t>(r));
  }
  std::atomic<std::uint64_t>& word(int r, std::uint32_t w) const { return board(r).board[w]; }
  std::uint32_t touched_words() const {
    return geometry.words > polled_words ? (geometry.words - polled_words + 63) / 64 : 0;
  }
  /// Touched bits of the words polled_words + 64 @p t and following.  The rank sets them, the leader clears them.
  std::atomic<std::uint64_t>& touched(int r, std::uint32_t t) const { return board(r).board[geometry.words + t]; }
  /// Flips ready bits of rank @p r.  Returns the word's new value.
  std::uint64_t flip(int r, std::uint32_t w, std::uint64_t bits) const {
    const std::uint64_t now = word(r, w).fetch_xor(bits, std::memory_order_seq_cst) ^ bits;
    if (w >= polled_words)
      touched(r, (w - polled_words) / 64).fetch_or(1ull << ((w - polled_words) % 64), std::memory_order_seq_cst);
    return now;
  }
  /// Bytes that the leader has taken from r's record queue since init.  The leader writes it.
  std::atomic<std::uint64_t>& taken(int r) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + taken_ + line_bytes * static_cast<std::size_t>(r));
  }
  /// @p id: below most_addresses.
  TensorAddress& tensor_address(int r, std::uint32_t id, unsigned parity) const {
    return at<TensorAddress>(addresses_ +
                             addresses_bytes() * static_cast<std::size_t>(r))[2 * std::size_t{id} + (parity & 1)];
  }
  /// Call it only if the geometry has `agreement`.
  AgreementWords& agreement(int r) const { return at<AgreementWords>(agreement_)[r]; }
  /// Keeps the memory mapped until the process ends.  Some transports cannot cancel a message to another node.
  /// Such a transport reads the message from this memory when the receiver requests it, perhaps in a later world.
  void keep() const {
    static std::mutex mutex;
    static auto& kept = *new std::vector<std::shared_ptr<void>>;
    std::lock_guard lock(mutex);
    kept.push_back(memory_);
  }
  /// @p arenas: [ranks] the arenas of this node's ranks; nullptr: this rank cannot map that arena.
  void attach_arenas(std::vector<std::shared_ptr<unsigned char>> arenas) { arenas_ = std::move(arenas); }
  unsigned char* arena(int r) const { return arenas_[static_cast<std::size_t>(r)].get(); }
  bool reaches_all() const {
    bool all = arenas_.size() == static_cast<std::size_t>(ranks);
    for (const auto& a : arenas_) all &= a != nullptr;
    return all;
  }

  unsigned char* commands() const { return base_ + commands_; }
  unsigned char* records(int r) const { return base_ + records_ + geometry.record_bytes * static_cast<std::size_t>(r); }
  unsigned char* result(std::uint64_t chunk) const { return base_ + results_ + (chunk & 1) * geometry.chunk_bytes; }
  unsigned char* ring(int r, std::uint64_t chunk) const {
    return base_ + rings_ + (2 * static_cast<std::size_t>(r) + (chunk & 1)) * geometry.chunk_bytes;
  }
  unsigned char* eager(int r) const { return base_ + eager_ + geometry.eager_bytes * static_cast<std::size_t>(r); }

  const Geometry geometry;
  const int me, ranks;

 private:
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  std::size_t addresses_bytes() const {
    return std::size_t{std::min(geometry.words * 64, most_addresses)} * 2 * sizeof(TensorAddress);
  }
  std::shared_ptr<void> memory_;
  std::vector<std::shared_ptr<unsigned char>> arenas_;
  std::vector<Doorbell*> doorbell_of_;  ///< [ranks]
  unsigned char* base_ = nullptr;
  std::size_t total_ = 0, public_stride_ = 0;
  std::size_t doorbells_, progress_, presence_, public_, taken_, commands_, records_, addresses_, agreement_, results_,
      rings_, eager_;
};

}  // namespace hvd::memory
