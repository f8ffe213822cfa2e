/// @file between_nodes.h — the step between nodes of an allreduce: each local rank carries its own slice.
///
/// The carriers with the same local index, one a node, reduce their slice among
/// themselves, always in the order of the nodes: like within a node, the bits do
/// not depend on what was fused, nor on when messages arrive.  Small slices:
/// everybody sends all it has and reduces it all, one round.  Else each reduces
/// one part and sends the result round, two rounds: each byte crosses a node's
/// link once each way, (n - 1) / n of them to be added, as many as results.
///
/// Parts that would lose something in the tensor's dtype travel wide (f16 and
/// bf16 in f32), so that a result is rounded once, as it is within a node; what
/// is sent round is in the dtype again.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "ops/allreduce/shm.h"
#include "ops/messages.h"
#include "ops/nodes.h"

namespace hvd::ops {

class BetweenNodes final : public SliceHook {
 public:
  BetweenNodes(const Nodes& nodes, transport::Transport& transport) : nodes_(nodes), transport_(transport) {}
  /// Before ShmAllreduce::begin.  @p stream must outlive the operation.
  void begin(const Stream& stream) { stream_ = &stream; }
  unsigned char* wide(std::size_t begin, std::size_t end) override;
  void start(std::uint64_t k, unsigned char* slice, std::size_t begin, std::size_t end) override;
  bool finished() override;
  /// After a lost peer.  What messages may still write to is kept until the end of the process.
  void drop();

 private:
  struct Slice {
    explicit Slice(transport::Transport& t) : first(t), second(t, transport::Tag::second) {}
    unsigned char* data = nullptr;    ///< in the result ring
    std::size_t begin = 0, end = 0;   ///< in the stream
    bool whole = true;                ///< one round
    bool reduced = false;             ///< this rank's part is
    std::vector<unsigned char> wide;  ///< the slice as it travels; empty: as it lies in the result ring
    std::vector<std::size_t> wire;    ///< [nodes + 1] where each node's part begins as it travels
    std::size_t part_bytes = 0;       ///< of the part that this rank reduces, as it travels
    std::vector<unsigned char> from;  ///< [nodes][part_bytes], or longer: what the others sent
    /// Rounds have tags of their own: a later slice may be in its first while this one is in its second.
    Messages first, second;
  };
  std::unique_ptr<Slice> fresh();
  /// Where node n's part of a slice begins, relative to it.  In one round everything is everybody's.
  std::size_t part(const Slice& s, int n) const;
  std::size_t part_end(const Slice& s, int n) const { return s.whole ? s.end - s.begin : part(s, n + 1); }
  std::size_t wire_bytes(std::size_t begin, std::size_t end) const;
  void lay_out(Slice& s) const;
  void reduce(Slice& s);
  void send_round(Slice& s);

  const Nodes& nodes_;
  transport::Transport& transport_;
  const Stream* stream_ = nullptr;
  std::vector<unsigned char> wide_;  ///< of the slice that is being reduced within the node
  std::deque<std::unique_ptr<Slice>> slices_;
  std::vector<std::unique_ptr<Slice>> spare_;  ///< over, with memory that has been touched before
};

}  // namespace hvd::ops
