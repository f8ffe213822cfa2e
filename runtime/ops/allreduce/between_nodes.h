/// @file between_nodes.h — the step between nodes of an allreduce: each local rank carries its own slice.
///
/// The carriers with the same local rank, one on each node, form stages of small groups (exchange_plan.h).  In each
/// stage they reduce their slice.  All additions follow the order of ops/node_order.h.  So the bits do not depend on
/// fusion, on the arrival of messages, or on the stages.
///
/// Receives are posted when a slice is expected, before its data exists.  So messages go straight to their place, and
/// no sender waits for a receive.  Several slices are under way, and each may be in a different round.  A slice never
/// overtakes the previous one, so both ranks of a pair send and receive in the same sequence.
///
/// Parts that would lose precision in the tensor's dtype travel in a wider type (f16 and bf16 in f32).  So a result is
/// rounded once, as within a node.  Finished results travel in the tensor's dtype.
#pragma once
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "ops/allreduce/exchange_plan.h"
#include "ops/allreduce/shm.h"
#include "ops/message_set.h"
#include "ops/node_order.h"
#include "ops/nodes.h"

namespace hvd::ops {

class BetweenNodes final : public SliceHook {
 public:
  BetweenNodes(const Nodes& nodes, transport::Transport& transport, const NetworkModel& model = {})
      : nodes_(nodes), transport_(transport), model_(model) {}
  /// Takes effect at the next begin().  All nodes must set the same latency.
  void set_latency(double ns) { model_.latency_ns = ns; }
  /// Call it before ShmAllreduce::begin(), with the same arguments.  @p stream must outlive the operation.
  void begin(const Stream& stream, const Cut& cut);
  bool takes_tensors() const override { return transport_.gives_memory_back(); }
  std::uint64_t most_slices() const override { return most_slices_; }
  unsigned char* expect(unsigned char* result, std::size_t begin, std::size_t end, bool tensors) override;
  unsigned char* wide() override;
  void start(const unsigned char* slice) override;
  bool finished() override;
  /// Gives up all slices after a peer was lost.  Memory of this object to which a message may still write is never
  /// freed.  No message writes to the caller's tensors any more.
  void drop();
  const ExchangePlan& plan() const { return plan_; }

 private:
  struct Slice {
    unsigned char* result = nullptr;
    const unsigned char* mine = nullptr;  ///< this node's partial sum; nullptr: start() has not been called
    bool tensors = false;                 ///< `result` and `mine` point into the caller's tensors
    std::size_t begin = 0, end = 0;       ///< in the stream
    int round = 0;                        ///< the current round; plan_.rounds(): finished
    std::vector<Range> held;              ///< [stages + 1] held[i]: this node's range before stage i, from `begin`
    std::vector<unsigned char> own;       ///< memory of the result if the caller gave none
    std::vector<unsigned char> wide;      ///< the sum in the wider type; empty: no tensor of the slice needs one
    std::vector<std::size_t> at;          ///< [stages] start of the stage's received parts in `from`
    std::vector<unsigned char> from;      ///< received parts: by stage, then by digit
    /// [stages] messages with parts, and messages with results.  Their tags differ: in one stage, a later slice may
    /// exchange parts while this slice exchanges results.
    std::deque<MessageSet> parts, results;
  };
  /// An empty slice; its memory may come from a finished slice.
  std::unique_ptr<Slice> fresh();
  int rank(int stage, int digit) const;
  int digit(int stage) const { return plan_.digit(nodes_.node, stage); }
  /// Bytes of a range of the slice on the wire.
  std::size_t wire_bytes(const Slice& s, Range r) const;
  /// Bytes reserved in `from` for one part of a stage.  A multiple of 64, because a part's elements must be aligned.
  std::size_t room_for_part(const Slice& s, int stage) const;
  /// Memory for the part that the node with digit @p digit sends in stage @p stage.  Call it only for the digits of
  /// other nodes.
  unsigned char* from(Slice& s, int stage, int digit) const;
  void receive_all(Slice& s);
  MessageSet& messages(Slice& s) const;
  void enter(Slice& s);
  void send_parts(Slice& s, int stage);
  void reduce(Slice& s, int stage);
  void look(const Item& item, std::size_t from, std::size_t elements, const void* sum, DType sum_dtype, int stage,
            std::span<unsigned char* const> source);

  const Nodes& nodes_;
  transport::Transport& transport_;
  NetworkModel model_;
  ExchangePlan plan_;
  NodeOrder order_;
  std::uint64_t most_slices_ = 2;
  const Stream* stream_ = nullptr;
  std::deque<std::unique_ptr<Slice>> slices_;  ///< expected, not finished; the oldest first
  std::vector<std::unique_ptr<Slice>> spare_;  ///< finished; their memory is used again
};

}  // namespace hvd::ops
