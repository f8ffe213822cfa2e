/// @file between_nodes.h — the step between nodes of an allreduce: each local rank carries its own slice.
///
/// The carriers with the same local index, one a node, reduce their slice among themselves, in stages of small groups
/// (exchange_plan.h), always in the order of ops/node_order.h: like within a node, the bits do not depend on what was
/// fused, nor on when messages arrive, nor on the stages.
///
/// Receives are posted when a slice is expected, before it is there: what comes then goes straight to its place, and
/// nobody waits to be asked.  Several slices are under way, each of them in a round of its own; a slice never overtakes
/// the one before it, so both ends of every pair send in the same sequence, which is how receives are matched.
///
/// Parts that would lose something in the tensor's dtype travel wide (f16 and
/// bf16 in f32), so that a result is rounded once, as it is within a node; what
/// is sent round is in the dtype again.
#pragma once
#include <deque>
#include <memory>
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
  /// From the next begin() on.  The same on all nodes.
  void set_latency(double ns) { model_.latency_ns = ns; }
  /// Before ShmAllreduce::begin.  @p stream must outlive the operation.
  void begin(const Stream& stream, const Cut& cut);
  bool takes_tensors() const override { return transport_.gives_memory_back(); }
  std::uint64_t most_slices() const override { return most_slices_; }
  unsigned char* expect(unsigned char* result, std::size_t begin, std::size_t end, bool tensors) override;
  unsigned char* wide() override;
  void start(const unsigned char* slice) override;
  bool finished() override;
  /// After a lost peer.  What messages may still write to is kept until the end of the process.
  void drop();
  const ExchangePlan& plan() const { return plan_; }

 private:
  struct Slice {
    unsigned char* result = nullptr;
    const unsigned char* mine = nullptr;  ///< this node's; nullptr: it is not there yet
    bool tensors = false;                 ///< both lie in the caller's tensors
    std::size_t begin = 0, end = 0;       ///< in the stream
    int round = 0;                        ///< that it is in
    std::vector<Range> held;              ///< [stages + 1] what of it this node goes on with, relative to begin
    std::vector<unsigned char> own;       ///< the result's memory where nobody gave any
    std::vector<unsigned char> wide;      ///< the slice as it travels; empty: as it lies there
    std::vector<std::size_t> at;          ///< [stages] where in `from` the others' begins
    std::vector<unsigned char> from;      ///< what the others have sent, a group after the other, by digit
    /// [stages] of parts, and of results.  They have tags of their own: a later slice may be in a stage for the first
    /// time while this one is in it for the second.
    std::deque<MessageSet> parts, results;
  };
  std::unique_ptr<Slice> fresh();
  int rank(int stage, int digit) const;
  int digit(int stage) const { return plan_.digit(nodes_.node, stage); }
  /// What a range of the slice takes as it travels.
  std::size_t wire_bytes(const Slice& s, Range r) const;
  unsigned char* from(Slice& s, int stage, int digit) const;
  void receive_all(Slice& s);
  MessageSet& messages(Slice& s) const;
  void enter(Slice& s);
  void send_parts(Slice& s, int stage);
  void reduce(Slice& s, int stage);

  const Nodes& nodes_;
  transport::Transport& transport_;
  NetworkModel model_;
  ExchangePlan plan_;
  NodeOrder order_;
  std::uint64_t most_slices_ = 2;
  const Stream* stream_ = nullptr;
  std::deque<std::unique_ptr<Slice>> slices_;  ///< expected, and not finished
  std::vector<std::unique_ptr<Slice>> spare_;  ///< over, with memory that has been touched before
};

}  // namespace hvd::ops
