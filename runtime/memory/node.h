/// @file node.h — what lies where in the memory that the ranks of one node share, for one process set.
///
/// Every word has one writer unless said otherwise, and every rank's words have
/// lines of their own (128 bytes: the neighbour line is fetched along).
/// Everything starts as zero.
#pragma once
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

/// How far a rank is with the chunks that stream through the rings (counts since init, never reset).
struct alignas(line_bytes) Progress {
  std::atomic<std::uint64_t> in;       ///< chunks copied into its ring
  std::atomic<std::uint64_t> used;     ///< chunks whose ring contents it no longer needs from anybody
  std::atomic<std::uint64_t> reduced;  ///< chunks whose slice it has finished in the result ring
  std::atomic<std::uint64_t> out;      ///< chunks copied out of the result ring
  std::atomic<std::uint64_t> direct;   ///< batches whose registered tensors it has reduced its slice of
};

struct alignas(line_bytes) Presence {
  std::atomic<std::uint64_t> read;       ///< bytes of the command ring that it has read
  std::atomic<std::uint32_t> departed;   ///< 1 after an orderly shutdown
  std::atomic<std::uint64_t> ping;       ///< for measuring the flag round trip
  std::atomic<std::uint32_t> want_tick;  ///< waits long: the coordinator should look for stalls
  std::atomic<std::uint32_t> reach;      ///< it has mapped all arenas of the node; before its first ready bit
};

/// Where a rank's tensor lies in its arena (arena.h), by id and parity of the round; as with the eager slots, it is
/// written before the ready bit and read after the batch was published.  0: in private memory; else offset + 1.
struct TensorAddress {
  std::atomic<std::uint64_t> in, out;
};

/// A rank's side of negotiation: what the coordinator polls, on one line for small worlds.
struct ReadyBoard {
  std::atomic<std::uint64_t> executed;  ///< commands carried out
  std::atomic<std::uint64_t> posted;    ///< bytes ever written to its record queue
  std::atomic<std::uint64_t> board[1];  ///< [words] ready bits by id, as parity: a bit flips once per round
};

inline constexpr int most_ranks = 512;  ///< of a node: whoever reduces keeps their addresses on its stack

/// How large the parts are; equal on all ranks of a node.
struct Geometry {
  int ranks = 1;
  std::uint32_t words = 32;               ///< 64 ids each
  std::size_t chunk_bytes = 512 << 10;    ///< one buffer of a ring
  std::size_t eager_bytes = 4 << 20;      ///< a rank's slots for small tensors
  std::size_t record_bytes = 64 << 10;    ///< a rank's queue to the node leader
  std::size_t command_bytes = 256 << 10;  ///< the ring in which commands are published
};

/// The view that one rank has of the segment.
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
    public_stride_ = (sizeof(ReadyBoard) + 8 * (g.words - 1) + line_bytes - 1) / line_bytes * line_bytes;
    const auto n = static_cast<std::size_t>(g.ranks);
    doorbells_ = take(n * sizeof(Doorbell));
    progress_ = take(n * sizeof(Progress));
    presence_ = take(n * sizeof(Presence));
    public_ = take(n * public_stride_);
    taken_ = take(n * line_bytes);
    commands_ = take(g.command_bytes);
    records_ = take(n * g.record_bytes);
    addresses_ = take(n * addresses_bytes());
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

  /// A rank has one doorbell, whatever the number of its sets: that of the world's node.
  Doorbell& doorbell(int r) const { return *doorbell_of_[static_cast<std::size_t>(r)]; }
  /// This is the memory of a process set: its member l (from 0) is the local rank @p locals[l] of @p world.
  void use_doorbells_of(const Node& world, const std::vector<int>& locals) {
    for (std::size_t l = 0; l < locals.size(); ++l) doorbell_of_[l] = &world.doorbell(locals[l]);
  }
  Progress& progress(int r) const { return at<Progress>(progress_)[r]; }
  Presence& presence(int r) const { return at<Presence>(presence_)[r]; }
  ReadyBoard& board(int r) const {
    return *reinterpret_cast<ReadyBoard*>(base_ + public_ + public_stride_ * static_cast<std::size_t>(r));
  }
  std::atomic<std::uint64_t>& word(int r, std::uint32_t w) const { return board(r).board[w]; }
  /// Bytes that the leader has taken from r's record queue.
  std::atomic<std::uint64_t>& taken(int r) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + taken_ + line_bytes * static_cast<std::size_t>(r));
  }
  TensorAddress& tensor_address(int r, std::uint32_t id, unsigned parity) const {
    return at<TensorAddress>(addresses_ +
                             addresses_bytes() * static_cast<std::size_t>(r))[2 * std::size_t{id} + (parity & 1)];
  }
  /// Stays mapped until the process ends: a message to another node cannot be called back, and is read from here when
  /// its receiver asks for it, perhaps in a later world.
  void keep() const {
    static std::mutex mutex;
    static auto& kept = *new std::vector<std::shared_ptr<void>>;
    std::lock_guard lock(mutex);
    kept.push_back(memory_);
  }
  /// The arenas of this node's ranks; nullptr for one that this rank cannot map.
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
  std::size_t addresses_bytes() const { return std::size_t{geometry.words} * 64 * 2 * sizeof(TensorAddress); }
  std::shared_ptr<void> memory_;
  std::vector<std::shared_ptr<unsigned char>> arenas_;
  std::vector<Doorbell*> doorbell_of_;  ///< [ranks]
  unsigned char* base_ = nullptr;
  std::size_t total_ = 0, public_stride_ = 0;
  std::size_t doorbells_, progress_, presence_, public_, taken_, commands_, records_, addresses_, results_, rings_,
      eager_;
};

}  // namespace hvd::memory
